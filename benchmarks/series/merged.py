"""A made merge of LoRA at the width of a language model: two 2048 × 2048 matrices, rank 8.

    python -m benchmarks.series.merged FOLDER [--seed 0] [--width 2048]

writes ``FOLDER/merged/base*`` and ``lora*``: bf16 weights with scales of rows and columns, to which
the product of two factors is added in fp32, 0.05 of the weights' size; the sum is kept in fp32 and
rounded to bf16, as merging scripts do. Nothing here is trained.
"""

import math
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.series.saving import save_weights

RANK, UPDATE, MATRICES = 8, 0.05, 2


def base_matrix(width: int, generator: torch.Generator) -> torch.Tensor:
    """Return weights of bf16 whose scale varies from row to row and column to column."""
    rows = torch.exp(0.3 * torch.randn(width, 1, generator=generator))
    columns = torch.exp(0.3 * torch.randn(1, width, generator=generator))
    weights = 0.02 * torch.randn(width, width, generator=generator) * rows * columns
    return weights.bfloat16().float()


def low_rank(matrix: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the product of two random factors, so large beside a matrix as an update is."""
    height, width = matrix.shape
    a = torch.randn(RANK, width, generator=generator) / math.sqrt(width)
    b = torch.randn(height, RANK, generator=generator)
    return b @ (a * (UPDATE * matrix.norm() / (b @ a).norm()))


def make(folder: Path, seed: int, width: int) -> None:
    """Make base and merge."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    base, merge = {}, {}
    for index in range(MATRICES):
        name = f"layers.{index}.attention.query.weight"
        base[name] = base_matrix(width, generator)
        merge[name] = base[name] + low_rank(base[name], generator)
    save_weights(folder / "merged" / "base", base)
    save_weights(folder / "merged" / "lora", merge)


def main(
    folder: Annotated[Path, typer.Argument(help="Where the files go.")],
    seed: int = 0,
    width: Annotated[int, typer.Option(min=16, help="Rows and columns.")] = 2048,
) -> None:
    """Make the files ``merged``."""
    make(folder, seed, width)


if __name__ == "__main__":
    typer.run(main)
