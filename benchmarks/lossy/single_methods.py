"""Measure ratio and error of well-known methods alone: the ratios that are often quoted.

Every tree codes the matrices of MiniLM; norms, biases and small tensors stay as they are, and count
as well. A ratio is the bytes of all tensors over the bytes that they take.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.common.checkpoints import is_weight, load, minilm
from benchmarks.common.distortion import total_snr
from benchmarks.common.models import minilm_quality
from benchmarks.common.reporting import Columns, Sheet
from benchmarks.lossy import budgets

FP32 = "minilm-fp32"


@dataclass(frozen=True)
class Method:
    """A method, the ratio that is quoted for it, and the tree that carries it out.

    Parameters
    ----------
    name, quoted : str
    tree : str
        Text of a tree.
    input : str
        An input of `checkpoints`.
    """

    name: str
    quoted: str
    tree: str
    input: str = FP32


METHODS = (
    *(
        Method(f"magnitude, {zeros:.0%} zeros", "3–10×", f"magnitude({zeros}, values=raw)")
        for zeros in (0.5, 0.7, 0.8, 0.9)
    ),
    Method("fp16", "2×", 'cast("F16", values=raw)'),
    Method("int8 rows", "4×", "affine(8, group=-1)"),
    Method("256 means", "4×", "kmeans(256, codes=raw)"),
    Method("SVD, half the rank, fp32", "1.4–3.3×", "svd(0.5, left=raw, right=raw)"),
    Method(
        "SVD, half the rank, fp16",
        "1.4–3.3×",
        'svd(0.5, left=cast("F16", values=raw), right=cast("F16", values=raw))',
    ),
    Method("Huffman, fp32", "1.25–5×", "floats(contexts=1)"),
    Method("Huffman, bf16 (cast)", "1.25–5×", "floats(contexts=1)", "minilm-bf16"),
    Method("Huffman, int8 grid in fp32", "1.25–5×", "grid(codes=huffman)", "int8-in-fp32"),
    Method("Huffman, int4 grid in fp32", "1.25–5×", "grid(codes=huffman)", "int4-in-fp32"),
)


@dataclass(frozen=True)
class SeedRow:
    """A method as measured.

    `snr` is of all matrices as one, in dB, infinite if nothing is lost; `zeros` the fraction of
    zeros in the decoded matrices; `cosine` that of sentence embeddings with the input's own.
    """

    name: str
    quoted: str
    tree: str
    ratio: float
    snr: float
    zeros: float
    cosine: float


def seed_rows(methods: Iterable[Method] = METHODS) -> Iterator[SeedRow]:
    """Carry out every method."""
    for method in methods:
        tensors = load(method.input).tensors
        matrices = {
            name: tensor
            for name, tensor in tensors.items()
            if is_weight(tensor) and tensor.size >= budgets.SMALLEST
        }
        nbytes, decoded = budgets.coded_by_text(method.tree, matrices)
        total = sum(tensor.nbytes for tensor in tensors.values())
        rest = total - sum(tensor.nbytes for tensor in matrices.values())
        zeros = sum(np.count_nonzero(tensor == 0) for tensor in decoded.values())
        snr = total_snr(matrices, decoded)
        yield SeedRow(
            method.name,
            method.quoted,
            method.tree,
            total / (nbytes + rest),
            snr,
            zeros / sum(tensor.size for tensor in matrices.values()),
            1.0 if snr == math.inf else minilm_quality(minilm() | decoded).cosine,
        )


def seed_sheet(rows: Iterable[SeedRow]) -> Sheet:
    """Tabulate the methods with their error."""
    title = "Methods by themselves, on MiniLM: the ratio often quoted, and what is measured"
    columns: Columns = {
        "method": lambda row: row.name,
        "tree": lambda row: f"`{row.tree}`",
        "quoted": lambda row: row.quoted,
        "ratio": lambda row: f"{row.ratio:.2f}×",
        "SNR dB": lambda row: "exact" if row.snr == math.inf else f"{row.snr:.1f}",
        "zeros": lambda row: f"{row.zeros:.1%}",
        "cosine of embeddings": lambda row: f"{row.cosine:.4f}",
    }
    return Sheet.of(title, rows, columns)
