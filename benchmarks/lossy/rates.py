"""Rates at given errors, and speeds: what `rate_distortion` tabulates."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import ggml, nncodec
from benchmarks.common.checkpoints import SEED, Array, Tensors, is_weight, minilm
from benchmarks.common.distortion import DB_A_BIT, mean_snr, snr_by_tensor, snr_db
from benchmarks.lossy import budgets
from tensorcomp.codecs.tree import Node

EFFORTS = {"default": "balanced", "max": "max"}

SOURCE_BITS = (1.75, 2.0, 3.0, 4.0, 5.0, 6.0)  # R(D); the first gives two bits at the default
SOURCE_SHAPE = (1024, 1024)

# Four `qp` more double the step. Each tensor is given those that take about 2.5 to 6.5 bits.
NNCODEC_POINTS = {
    "iid Gaussian": (-4, -8, -12, -16),
    "encoder.layer.1.intermediate.dense.weight": (-24, -28, -32, -36),
    "encoder.layer.2.attention.self.query.weight": (-24, -28, -32),
    "encoder.layer.3.output.dense.weight": (-24, -28, -32, -36),
}


@dataclass(frozen=True)
class GgufRow:
    """A block format of GGUF, and tensorcomp at its SNR on every tensor.

    `gguf_bits` are of the matrices alone, `gguf_file_bits` of a file with the other tensors in
    fp32; `bits` are of the whole file. `margin` is the least, over the tensors, of what
    tensorcomp's SNR is above GGUF's.
    """

    kind: str
    gguf_bits: float
    gguf_file_bits: float
    mean_snr: float
    lowest_snr: float
    bits: dict[str, float]
    margin: dict[str, float]


def gguf_rows(kinds: Iterable[str], efforts: Sequence[str]) -> Iterator[GgufRow]:
    """Compress MiniLM to the SNR that ggml reaches on each of its matrices."""
    tensors = minilm()
    matrices = {name: tensor for name, tensor in tensors.items() if is_weight(tensor)}
    rest = sum(tensor.nbytes for name, tensor in tensors.items() if name not in matrices)
    for kind in kinds:
        found = {name: ggml.quantized(kind, tensor) for name, tensor in matrices.items()}
        snr = {name: snr_db(matrices[name], decoded) for name, (_, decoded) in found.items()}
        bits, margin = {}, {}
        for effort in efforts:
            coded = budgets.at_snr(tensors, snr, EFFORTS[effort])
            reached = snr_by_tensor(matrices, {name: coded.decoded[name] for name in matrices})
            bits[effort] = budgets.bits(coded.nbytes, tensors)
            margin[effort] = min(reached[name] - snr[name] for name in matrices)
        size = sum(nbytes for nbytes, _ in found.values())
        yield GgufRow(
            kind,
            ggml.kind(kind).bits,
            budgets.bits(size + rest, tensors),
            mean_snr(snr, matrices),
            min(snr.values()),
            bits,
            margin,
        )


@dataclass(frozen=True)
class SourceRow:
    """Independent weights of a distribution at an SNR; bits are of the whole file."""

    source: str
    snr: float
    bits: dict[str, float]
    above: dict[str, float]


def source(name: str) -> Array:
    """Return a matrix of independent draws, always the same."""
    generator = np.random.default_rng(SEED)
    if name == "iid Gaussian":
        return generator.standard_normal(SOURCE_SHAPE, np.float32)
    return generator.standard_t(5, SOURCE_SHAPE).astype(np.float32)


def source_rows(limits: Iterable[float], efforts: Sequence[str]) -> Iterator[SourceRow]:
    """Compress independent weights, at the SNR for which a Gaussian needs so many bits."""
    for name in ("iid Gaussian", "Student t(5)"):
        tensors = {"weight": source(name)}
        for limit in limits:
            wanted = limit * DB_A_BIT
            bits, above = {}, {}
            for effort in efforts:
                coded = budgets.at_snr(tensors, {"weight": wanted}, EFFORTS[effort])
                reached = snr_db(tensors["weight"], coded.decoded["weight"])
                bits[effort] = budgets.bits(coded.nbytes, tensors)
                above[effort] = bits[effort] - reached / DB_A_BIT
            yield SourceRow(name, wanted, bits, above)


@dataclass(frozen=True)
class NncodecRow:
    """NNCodec at one step, and an effort of tensorcomp at its SNR, on one thread each.

    Bytes are payloads, without a container.

    Parameters
    ----------
    tensor : str
    qp : int
    snr, bits : float
        NNCodec's, in dB and a weight.
    encode, decode : float
        NNCodec's millions of weights a second.
    effort : str
    ratio : float
        tensorcomp's bytes over NNCodec's.
    margin : float
        tensorcomp's SNR above NNCodec's, in dB.
    encode_times, decode_times : float
        How many times as fast tensorcomp is: the median over rounds.
    """

    tensor: str
    qp: int
    snr: float
    bits: float
    encode: float
    decode: float
    effort: str
    ratio: float
    margin: float
    encode_times: float
    decode_times: float


def nncodec_rows(rounds: int, efforts: Sequence[str]) -> Iterator[NncodecRow]:
    """Code four tensors by NNCodec and by tensorcomp, in turns, each on one thread."""
    tensors: Tensors = {"iid Gaussian": source("iid Gaussian"), **minilm()}
    for name, steps in NNCODEC_POINTS.items():
        for qp in steps:
            yield from _nncodec_rows(name, tensors[name], qp, rounds, efforts)


def _nncodec_rows(
    name: str, array: Array, qp: int, rounds: int, efforts: Sequence[str]
) -> Iterator[NncodecRow]:
    stream = nncodec.encode(array, qp)
    snr = snr_db(array, nncodec.decode(stream))
    trees = {effort: budgets.tree_at_snr(array, snr, EFFORTS[effort]) for effort in efforts}
    data = {effort: budgets.payload(tree, array) for effort, tree in trees.items()}
    theirs: list[tuple[float, float]] = []
    ours: dict[str, list[tuple[float, float]]] = {effort: [] for effort in trees}
    for _ in range(rounds):
        theirs.append(_times(lambda: nncodec.encode(array, qp), nncodec.decode))
        for effort, tree in trees.items():
            encode, decode = partial(budgets.payload, tree, array), partial(_restored, tree, array)
            ours[effort].append(_times(encode, decode))
    for effort, tree in trees.items():
        pairs = list(zip(ours[effort], theirs, strict=True))
        yield NncodecRow(
            name,
            qp,
            snr,
            8 * len(stream) / array.size,
            array.size / median(encode for encode, _ in theirs) / 1e6,
            array.size / median(decode for _, decode in theirs) / 1e6,
            effort,
            len(data[effort]) / len(stream),
            snr_db(array, _restored(tree, array, data[effort])) - snr,
            median(their[0] / our[0] for our, their in pairs),
            median(their[1] / our[1] for our, their in pairs),
        )


def _restored(tree: Node, array: Array, data: bytes) -> Array:
    return budgets.restored(tree, data, array)


def _times(encode: Callable[[], Any], decode: Callable[[Any], Any]) -> tuple[float, float]:
    """Return the seconds of encoding and of decoding."""
    start = time.perf_counter()
    data = encode()
    middle = time.perf_counter()
    decode(data)
    return middle - start, time.perf_counter() - middle


@dataclass(frozen=True)
class DecodeRow:
    """How fast a whole file decodes to fp32 tensors in memory; seconds by round."""

    effort: str
    bits: float
    weights: int
    threads: int
    seconds: list[float]

    @property
    def speed(self) -> float:
        """Return millions of weights a second."""
        return self.weights / median(self.seconds) / 1e6


def decode_rows(
    bits: float, rounds: int, efforts: Sequence[str], threads: int
) -> Iterator[DecodeRow]:
    """Decode MiniLM out of a file of so many bits a weight, from memory to memory."""
    tensors = minilm()
    weights = sum(tensor.size for tensor in tensors.values())
    for effort in efforts:
        file = budgets.file_at_bits(tensors, bits, EFFORTS[effort])
        budgets.loaded(file, threads)
        seconds = []
        for _ in range(rounds):
            start = time.perf_counter()
            decoded = budgets.loaded(file, threads)
            seconds.append(time.perf_counter() - start)
            del decoded
        yield DecodeRow(effort, 8 * len(file) / weights, weights, threads, seconds)
