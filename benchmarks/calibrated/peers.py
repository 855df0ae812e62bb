"""Formats of fixed width, with statistics and without, and tensorcomp in their bytes.

Every format codes all matrices of at least 4,096 weights, tables among them; the other tensors
stay as they are and count. GPTQ has the same second moments as tensorcomp, of tables too. ggml's
K-quants are made of blocks of 256 weights, which rows of 160, 384 and 448 are no multiple of: rows
go one after the other, several as one. Its importance matrix is the diagonal of the second moments.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.calibrated.gptq import Format, gptq
from benchmarks.calibrated.rates import above
from benchmarks.common import ggml
from benchmarks.common.checkpoints import Array, Tensors, is_weight, minilm
from benchmarks.common.models import minilm_quality, tiny_lm
from benchmarks.common.reporting import Limit, Sheet, number
from benchmarks.lossy import budgets
from benchmarks.lossy.fixed_width import FORMATS
from tensorcomp.planning.moments import Moment
from tensorcomp.pruning import Statistics

Coder = Callable[[Array, Moment | None], tuple[int, Array]]  # bytes, and what is decoded

QUALITIES: dict[str, Callable[[Tensors], float]] = {
    "tiny_lm": above,
    "MiniLM": lambda tensors: minilm_quality(tensors).cosine,
}
_MODELS = {"tiny_lm": tiny_lm, "MiniLM": minilm}


@dataclass(frozen=True)
class Peer:
    """A format, and whether it is given statistics."""

    name: str
    coder: Coder
    calibrated: bool


@dataclass(frozen=True)
class PeerRow:
    """A format, and tensorcomp in its bytes.

    `quality` is that of `QUALITIES`; tensorcomp's without statistics and with.
    """

    model: str
    peer: str
    calibrated: bool
    bits: float
    quality: float
    without: float
    balanced: float
    best: float


def _nearest(form: Format, matrix: Array, _: Moment | None) -> tuple[int, Array]:
    return form.nbytes(matrix), form.rounded(matrix)


def _gptq(form: Format, act_order: bool, matrix: Array, moment: Moment | None) -> tuple[int, Array]:
    if moment is None:
        return _nearest(form, matrix, None)
    return form.nbytes(matrix), gptq(matrix, moment.matrix[0], form, act_order=act_order)


def _ggml(kind: str, weighted: bool, matrix: Array, moment: Moment | None) -> tuple[int, Array]:
    known = np.diagonal(moment.matrix[0]) if weighted and moment is not None else None
    return ggml.quantized(kind, matrix, known)


def _nf4(matrix: Array, _: Moment | None) -> tuple[int, Array]:
    return FORMATS["NF4 b64"](matrix)


def peers(groups: Sequence[int] = (64, 128)) -> Iterator[Peer]:
    """Yield all formats that can be run here."""
    for bits in (4, 3, 2):
        for group in groups:
            form = Format(bits, group)
            yield Peer(f"nearest, {form.name}", partial(_nearest, form), False)
            yield Peer(f"GPTQ, {form.name}", partial(_gptq, form, False), True)
            yield Peer(f"GPTQ, act-order, {form.name}", partial(_gptq, form, True), True)
    yield Peer("NF4, b64", _nf4, False)
    try:
        ggml.kind("q4_K")
    except ggml.MissingGgmlError:
        return
    for kind in ("q4_K", "q3_K", "q2_K"):
        yield Peer(f"ggml {kind}", partial(_ggml, kind, False), False)
        yield Peer(f"ggml {kind}, imatrix", partial(_ggml, kind, True), True)


def coded(coder: Coder, tensors: Tensors, statistics: Statistics) -> tuple[int, Tensors]:
    """Return the bytes of a checkpoint in a format and what is decoded."""
    total, decoded = 0, {}
    for name, tensor in tensors.items():
        nbytes, decoded[name] = tensor.nbytes, tensor
        if is_weight(tensor) and tensor.size >= budgets.SMALLEST:
            nbytes, decoded[name] = coder(tensor, statistics.moment(name))
        total += nbytes
    return total, decoded


def peer_rows(model: str, statistics: Statistics, chosen: Iterable[Peer]) -> Iterator[PeerRow]:
    """Store a model in every format, and by tensorcomp in as many bytes."""
    tensors, quality = _MODELS[model](), QUALITIES[model]
    known: dict[int, list[float]] = {}  # of formats of the same size
    for peer in chosen:
        nbytes, decoded = coded(peer.coder, tensors, statistics)
        if nbytes not in known:
            known[nbytes] = [
                quality(budgets.at_size(tensors, nbytes, "transformer", measured, effort).decoded)
                for measured, effort in (
                    (None, "balanced"),
                    (statistics, "balanced"),
                    (statistics, "max"),
                )
            ]
        bits = budgets.bits(nbytes, tensors)
        yield PeerRow(model, peer.name, peer.calibrated, bits, quality(decoded), *known[nbytes])


def peer_sheet(model: str, rows: Iterable[PeerRow]) -> Sheet:
    """Tabulate formats beside tensorcomp in their bytes."""
    measure, digits = {
        "tiny_lm": ("held-out perplexity above the original's, %", 2),
        "MiniLM": ("cosine of sentence embeddings with the original's", 4),
    }[model]
    columns: dict[str, Callable[[PeerRow], str]] = {
        "format": lambda row: row.peer,
        "bpw": lambda row: f"{row.bits:.3f}",
        "the format's": lambda row: number(row.quality, digits),
        "tensorcomp, no statistics": lambda row: number(row.without, digits),
        "with, balanced": lambda row: number(row.balanced, digits),
        "with, max": lambda row: number(row.best, digits),
    }
    title = f"{model}: {measure}, at equal bytes"
    return Sheet.of(title, [row for row in rows if row.model == model], columns)


def peer_limits(rows: Iterable[PeerRow]) -> list[Limit]:
    """Judge tensorcomp with statistics beside each format, and without beside those without."""
    limits = []
    for row in rows:
        lower, what = row.model == "tiny_lm", f"{row.model} in the bytes of {row.peer}"
        limits.append(Limit(f"{what}, with statistics", row.balanced, row.quality, at_most=lower))
        if not row.calibrated:
            limits.append(Limit(f"{what}, without", row.without, row.quality, at_most=lower))
    return limits
