"""Quality by bits a weight, without statistics and with them: three models."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.calibrated.samples import (
    digit_network,
    digit_statistics,
    tiny_lm_statistics,
)
from benchmarks.common.checkpoints import Tensors, minilm
from benchmarks.common.models import minilm_quality, tiny_lm, tiny_lm_quality
from benchmarks.common.reporting import Limit, Sheet, number
from benchmarks.lossy import budgets
from tensorcomp.pruning import Statistics

EFFORTS = ("balanced", "max")
SEEDS = (0, 1, 2)
USUAL = (64, 256)  # windows, and bytes of each
FEW = ((30, 128), (8, 256))
RATES = {"tiny_lm": (4.0, 3.0, 2.0, 1.5), "MiniLM": (4.0, 3.0, 2.0), "LeNet-5": (3.0, 2.0, 1.0)}
# Per cent of perplexity, balanced and max; cosine; share of digits.
PERPLEXITY = {4.0: (0.12, 0.08), 3.0: (0.4, 0.25), 2.0: (1.5, 0.9), 1.5: (6.0, 4.0)}
MOST_OF_THE_GAIN = 0.75
COSINE = {4.0: 0.985, 3.0: 0.94, 2.0: 0.78}


@dataclass(frozen=True)
class RateRow:
    """Quality of a model at a rate, with each of several samples, or without statistics.

    Of tiny_lm it is per cent of held-out perplexity above the original's, of MiniLM the cosine of
    embeddings, of LeNet-5 per cent of held-out digits that it takes for the same as before;
    `divergence` is that of its predictions, in 1e-3 nats.
    """

    model: str
    sample: str
    effort: str
    wanted: float
    bits: float
    quality: tuple[float, ...]
    divergence: float = math.nan

    @property
    def text(self) -> str:
        """The median, and the range of several samples."""
        digits = 2 if self.model == "tiny_lm" else 4
        shown = number(median(self.quality), digits)
        if len(self.quality) > 1:
            least, most = (number(end(self.quality), digits) for end in (min, max))
            shown += f" ({least}–{most})"
        return shown if math.isnan(self.divergence) else f"{shown} %, {self.divergence:.3f}"


def at_bits(
    tensors: Tensors, wanted: float, statistics: Statistics | None, effort: str, profile: str
) -> budgets.Coded:
    """Compress a checkpoint to so many bits a weight, every byte of the file counted."""
    size = int(wanted * sum(tensor.size for tensor in tensors.values()) / 8)
    return budgets.at_size(tensors, size, profile, statistics, effort)


def titled(size: tuple[int, int]) -> str:
    """Name a sample of windows."""
    return f"{size[0]} windows of {size[1]} bytes"


def above(tensors: Tensors) -> float:
    """Return by how many per cent tiny_lm's perplexity lies above the original's."""
    return 100 * (tiny_lm_quality(tensors).perplexity / _own_perplexity() - 1)


@cache
def _own_perplexity() -> float:
    return tiny_lm_quality(tiny_lm()).perplexity


def tiny_lm_rows(rates: Sequence[float], seeds: Sequence[int]) -> Iterator[RateRow]:
    """Compress tiny_lm with statistics of many windows and of few."""
    tensors = tiny_lm()
    samples: dict[str, list[Statistics | None]] = {"none": [None]}
    for size in (USUAL, *FEW):
        samples[titled(size)] = [tiny_lm_statistics(*size, seed) for seed in seeds]
    few = [titled(size) for size in FEW]
    for sample, measured in samples.items():
        for effort in EFFORTS[:1] if sample in few else EFFORTS:
            for wanted in rates:
                files = [at_bits(tensors, wanted, one, effort, "transformer") for one in measured]
                largest = max(budgets.bits(file.nbytes, tensors) for file in files)
                quality = tuple(above(file.decoded) for file in files)
                yield RateRow("tiny_lm", sample, effort, wanted, largest, quality)


def minilm_rows(rates: Sequence[float], statistics: Statistics) -> Iterator[RateRow]:
    """Compress MiniLM."""
    tensors = minilm()
    for sample, measured in (("none", None), ("news", statistics)):
        for effort in EFFORTS:
            for wanted in rates:
                file = at_bits(tensors, wanted, measured, effort, "transformer")
                bits, cosine = budgets.bits(file.nbytes, tensors), minilm_quality(file.decoded)
                yield RateRow("MiniLM", sample, effort, wanted, bits, (cosine.cosine,))


def digit_rows(rates: Sequence[float]) -> Iterator[RateRow]:
    """Compress LeNet-5."""
    model, digits = digit_network()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in state.items()}
    statistics = digit_statistics()
    with torch.inference_mode():
        own = model(digits.held_out_images).log_softmax(1)
        for sample, measured in (("none", None), ("training digits", statistics)):
            for effort in EFFORTS:
                for wanted in rates:
                    file = at_bits(tensors, wanted, measured, effort, "cnn")
                    model.load_state_dict({n: torch.from_numpy(a) for n, a in file.decoded.items()})
                    found = model(digits.held_out_images).log_softmax(1)
                    same = 100 * float((found.argmax(1) == own.argmax(1)).float().mean())
                    lost = float(F.kl_div(found, own, reduction="batchmean", log_target=True))
                    bits = budgets.bits(file.nbytes, tensors)
                    yield RateRow("LeNet-5", sample, effort, wanted, bits, (same,), 1e3 * lost)
    model.load_state_dict(state)


TITLES = {
    "tiny_lm": "tiny_lm: held-out perplexity above the original's, %; medians (and ranges) of "
    "{seeds} samples of windows of training text",
    "MiniLM": "MiniLM: cosine of sentence embeddings with the original's; calibrated on news, "
    "tested on technical text",
    "LeNet-5": "LeNet-5: held-out digits taken for the same as before, %, and divergence of its "
    "predictions, 1e-3 nats",
}


def rate_sheet(model: str, rows: Iterable[RateRow]) -> Sheet:
    """Tabulate samples and efforts down, rates across."""
    chosen = [row for row in rows if row.model == model]
    seeds = max((len(row.quality) for row in chosen), default=0)
    cells = {(f"{row.sample}, {row.effort}", f"{row.wanted:g} bpw"): row.text for row in chosen}
    return Sheet.pivot(TITLES[model].format(seeds=seeds), "statistics, effort", cells)


def rate_limits(rows: Sequence[RateRow]) -> list[Limit]:
    """Judge what statistics give, and that files are not larger than asked."""
    limits = []
    usual = titled(USUAL)
    by_key = {(row.model, row.sample, row.effort, row.wanted): row.quality for row in rows}
    for row in rows:
        what = f"{row.model} at {row.wanted:g} bpw, {row.effort}"
        found = median(row.quality)
        if row.model == "tiny_lm" and row.sample == usual and row.wanted in PERPLEXITY:
            limit = PERPLEXITY[row.wanted][EFFORTS.index(row.effort)]
            limits.append(Limit(f"{what}: perplexity above the original's, %", found, limit))
        elif row.model == "tiny_lm" and row.sample == titled(FEW[0]):
            without = median(by_key["tiny_lm", "none", row.effort, row.wanted])
            most = median(by_key["tiny_lm", usual, row.effort, row.wanted])
            gain = (without - found) / (without - most)
            what += f": share of the gain, {row.sample}"
            limits.append(Limit(what, gain, MOST_OF_THE_GAIN, at_most=False))
        elif row.model == "MiniLM" and row.sample == "news" and row.effort == "balanced":
            limits.append(Limit(f"{what}: cosine", found, COSINE[row.wanted], at_most=False))
        elif row.model == "LeNet-5" and row.sample != "none":
            without = by_key["LeNet-5", "none", row.effort, row.wanted][0]
            limits.append(Limit(f"{what}: same digits, %", found, without, at_most=False))
    for model in dict.fromkeys(row.model for row in rows):
        over = max(row.bits - row.wanted for row in rows if row.model == model)
        limits.append(Limit(f"{model}: bits a weight above those asked for", over, 0.0))
    return limits
