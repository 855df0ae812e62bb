"""Perplexity of tiny_lm against sparsity, in one shot: magnitude, Wanda, optimal brain damage.

The stored checkpoint is pruned, with the statistics that `calibrate` measured on training text, and
written losslessly; the file is read back and judged on the held-out text. Nothing is trained.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.models import TINY_LM, tiny_lm, tiny_lm_quality, tiny_lm_script
from benchmarks.common.reporting import Limit, Sheet, number
from tensorcomp import compress, load_file
from tensorcomp.pruning import Pruning, Statistics, calibrate

SPARSITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
WINDOWS = 128  # of 256 bytes, each a minibatch
SEED = 0
JUDGED = 0.5
MAGNITUDE, WANDA, DAMAGE = "magnitude", "wanda", "obd"
TITLES = {MAGNITUDE: "magnitude", WANDA: "Wanda", DAMAGE: "OBD"}
PAIRS = (  # a score, and where the lowest are looked for
    (MAGNITUDE, "global"),
    (MAGNITUDE, "tensor"),
    (MAGNITUDE, "row"),
    (WANDA, "row"),
    (DAMAGE, "global"),
    (DAMAGE, "tensor"),
)
# Each is judged beside magnitude where it looks for the lowest in the same places.
RIVALS = {
    (WANDA, "row"): (MAGNITUDE, "row"),
    (DAMAGE, "global"): (MAGNITUDE, "global"),
    (DAMAGE, "tensor"): (MAGNITUDE, "tensor"),
}


@dataclass(frozen=True)
class LanguageRow:
    """Held-out perplexity a byte of a pruned tiny_lm, and the bytes of its file."""

    score: str
    scope: str
    sparsity: float
    perplexity: float
    nbytes: int


def measured(windows: int = WINDOWS) -> Statistics:
    """Measure tiny_lm on windows of training text."""
    import torch

    data = tiny_lm_script("data")
    state = {
        name: torch.from_numpy(tensor.astype(np.float32)) for name, tensor in tiny_lm().items()
    }
    model = tiny_lm_script("evaluate").model_from(state)
    generator = torch.Generator().manual_seed(SEED)
    text = data.load_corpus().train
    batches = [data.random_windows(text, 1, generator) for _ in range(windows)]
    return calibrate(model, batches, statistics=("input_norm", "fisher"))


def language_rows(sparsities: Sequence[float], windows: int = WINDOWS) -> Iterator[LanguageRow]:
    """Prune tiny_lm to every sparsity by every score."""
    statistics = measured(windows)
    for sparsity in sparsities:
        for score, scope in PAIRS:
            stats = None if score == MAGNITUDE else statistics
            pruning = Pruning(score, sparsity, stats=stats, scope=scope)
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "pruned.tc.safetensors")
                compress(TINY_LM / "model.safetensors", file, prune=pruning)
                tensors: dict[str, Any] = load_file(file)
                nbytes = file.stat().st_size
            yield LanguageRow(score, scope, sparsity, tiny_lm_quality(tensors).perplexity, nbytes)


def titled(score: str, scope: str) -> str:
    """Name a score and where it looks for the lowest."""
    return f"{TITLES[score]}, {scope if scope == 'global' else f'per {scope}'}"


def language_sheet(rows: list[LanguageRow]) -> Sheet:
    """Tabulate perplexities, sparsities down, and the ratio of the smallest file."""
    original = sum(tensor.nbytes for tensor in tiny_lm().values())
    cells: dict[tuple[str, str], str] = {}
    ratios: dict[str, list[float]] = {}
    for row in rows:
        name = f"{row.sparsity:g}"
        cells[name, titled(row.score, row.scope)] = number(row.perplexity, 3)
        ratios.setdefault(name, []).append(original / row.nbytes)
    for name, found in ratios.items():
        cells[name, "file, lossless, of bf16"] = f"{min(found):.2f}–{max(found):.2f}×"
    own = tiny_lm_quality(tiny_lm()).perplexity if rows else math.nan
    title = (
        f"tiny_lm: held-out perplexity by sparsity of its layers, one shot ({own:.3f} before); "
        f"statistics of {WINDOWS} windows of training text, seed {SEED}"
    )
    return Sheet.pivot(title, "sparsity", cells)


def language_limits(rows: list[LanguageRow]) -> list[Limit]:
    """Judge Wanda and OBD beside magnitude, at half the weights."""
    found = {(row.score, row.scope): row.perplexity for row in rows if row.sparsity == JUDGED}
    return [
        Limit(
            f"tiny_lm, {JUDGED:.0%} zeros, {titled(*ours)}: perplexity", found[ours], found[rival]
        )
        for ours, rival in RIVALS.items()
        if ours in found and rival in found
    ]
