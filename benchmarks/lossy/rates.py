"""Rates at given errors, and speeds: what `rate_distortion` tabulates."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import ggml
from benchmarks.common import nncodec as nncodec_peer
from benchmarks.common.checkpoints import SEED, Array, Tensors, is_weight, minilm
from benchmarks.common.distortion import DB_A_BIT, bits_above_limit, mean_snr, snr_by_tensor, snr_db
from benchmarks.lossy import budgets as lossy
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


def gguf_rows(kinds: Iterable[str], efforts: Iterable[str]) -> Iterator[GgufRow]:
    """Compress MiniLM to the SNR that ggml reaches on each of its matrices."""
    tensors = minilm()
    matrices = {name: tensor for name, tensor in tensors.items() if is_weight(tensor)}
    rest = sum(tensor.nbytes for name, tensor in tensors.items() if name not in matrices)
    for kind in kinds:
        found = {name: ggml.quantized(kind, tensor) for name, tensor in matrices.items()}
        snr = {name: snr_db(matrices[name], decoded) for name, (_, decoded) in found.items()}
        bits, margin = {}, {}
        for effort in efforts:
            coded = lossy.at_snr(tensors, snr, EFFORTS[effort])
            reached = snr_by_tensor(matrices, {name: coded.decoded[name] for name in matrices})
            bits[effort] = lossy.bits(coded.nbytes, tensors)
            margin[effort] = min(reached[name] - snr[name] for name in matrices)
        size = sum(nbytes for nbytes, _ in found.values())
        yield GgufRow(
            kind,
            ggml.kind(kind).bits,
            lossy.bits(size + rest, tensors),
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


def source_rows(limits: Iterable[float], efforts: Iterable[str]) -> Iterator[SourceRow]:
    """Compress independent weights, at the SNR for which a Gaussian needs so many bits."""
    efforts = tuple(efforts)
    for name in ("iid Gaussian", "Student t(5)"):
        tensors = {"weight": source(name)}
        for limit in limits:
            wanted = limit * DB_A_BIT
            bits, above = {}, {}
            for effort in efforts:
                coded = lossy.at_snr(tensors, {"weight": wanted}, EFFORTS[effort])
                reached = snr_db(tensors["weight"], coded.decoded["weight"])
                bits[effort] = lossy.bits(coded.nbytes, tensors)
                above[effort] = bits_above_limit(bits[effort], reached)
            yield SourceRow(name, wanted, bits, above)


@dataclass(frozen=True)
class Speed:
    """Seconds by round of encoding and decoding one array on one thread."""

    encode: list[float]
    decode: list[float]

    def of(self, which: str) -> list[float]:
        """Return the seconds of "encode" or of "decode"."""
        return self.encode if which == "encode" else self.decode


@dataclass(frozen=True)
class NncodecRow:
    """NNCodec at one step, and tensorcomp at its SNR; bytes are payloads, without a container."""

    tensor: str
    weights: int
    qp: int
    snr: float
    nncodec_bytes: int
    nncodec: Speed
    tensorcomp_bytes: dict[str, int]
    margin: dict[str, float]
    tensorcomp: dict[str, Speed]

    @property
    def nncodec_bits(self) -> float:
        """Return NNCodec's bits a weight."""
        return 8 * self.nncodec_bytes / self.weights

    def ratio(self, effort: str) -> float:
        """Return tensorcomp's bytes over NNCodec's."""
        return self.tensorcomp_bytes[effort] / self.nncodec_bytes

    def times(self, effort: str, which: str) -> float:
        """Return the median over rounds of how many times as fast tensorcomp encodes or decodes."""
        ours, theirs = self.tensorcomp[effort].of(which), self.nncodec.of(which)
        return median(b / a for a, b in zip(ours, theirs, strict=True))

    def speed(self, which: str, effort: str | None = None) -> float:
        """Return NNCodec's or an effort's millions of weights a second."""
        speed = self.nncodec if effort is None else self.tensorcomp[effort]
        return self.weights / median(speed.of(which)) / 1e6


def nncodec_rows(rounds: int, efforts: Iterable[str], *, points: int) -> Iterator[NncodecRow]:
    """Code four tensors by NNCodec and by tensorcomp, in turns, each on one thread."""
    efforts = tuple(efforts)
    tensors: Tensors = {"iid Gaussian": source("iid Gaussian"), **minilm()}
    for name, steps in NNCODEC_POINTS.items():
        for qp in steps[-points:]:
            yield _nncodec_row(name, tensors[name], qp, rounds, efforts)


def _nncodec_row(
    name: str, array: Array, qp: int, rounds: int, efforts: tuple[str, ...]
) -> NncodecRow:
    stream = nncodec_peer.encode(array, qp)
    snr = snr_db(array, nncodec_peer.decode(stream))
    trees = {effort: lossy.tree_at_snr(array, snr, EFFORTS[effort]) for effort in efforts}
    data = {effort: lossy.payload(tree, array) for effort, tree in trees.items()}  # compiles
    decodings = {
        effort: lossy.restored(tree, data[effort], array) for effort, tree in trees.items()
    }
    theirs = Speed([], [])
    ours = {effort: Speed([], []) for effort in efforts}
    for _ in range(rounds):
        _add_times(theirs, lambda: nncodec_peer.encode(array, qp), nncodec_peer.decode)
        for effort, tree in trees.items():
            _add_times(ours[effort], *_coder(tree, array))
    return NncodecRow(
        name,
        array.size,
        qp,
        snr,
        len(stream),
        theirs,
        {effort: len(data[effort]) for effort in efforts},
        {effort: snr_db(array, decoded) - snr for effort, decoded in decodings.items()},
        ours,
    )


def _coder(tree: Node, array: Array) -> tuple[Callable[[], bytes], Callable[[bytes], Array]]:
    return (
        lambda: lossy.payload(tree, array),
        lambda data: lossy.restored(tree, data, array),
    )


def _add_times(speed: Speed, encode: Callable[[], Any], decode: Callable[[Any], Any]) -> None:
    start = time.perf_counter()
    data = encode()
    middle = time.perf_counter()
    decode(data)
    speed.encode.append(middle - start)
    speed.decode.append(time.perf_counter() - middle)


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
    bits: float, rounds: int, efforts: Iterable[str], threads: int
) -> Iterator[DecodeRow]:
    """Decode MiniLM out of a file of so many bits a weight, from memory to memory."""
    tensors = minilm()
    weights = sum(tensor.size for tensor in tensors.values())
    for effort in efforts:
        file = lossy.file_at_bits(tensors, bits, EFFORTS[effort])
        lossy.loaded(file, threads)
        seconds = []
        for _ in range(rounds):
            start = time.perf_counter()
            decoded = lossy.loaded(file, threads)
            seconds.append(time.perf_counter() - start)
            del decoded
        yield DecodeRow(effort, 8 * len(file) / weights, weights, threads, seconds)
