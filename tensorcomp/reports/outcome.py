"""What became of a checkpoint and of each of its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from tensorcomp.container.records import TensorRecord


@dataclass(frozen=True)
class TensorReport:
    """What became of one tensor.

    Parameters
    ----------
    record : TensorRecord
    tree : str
        Text of its tree; empty for a duplicate.
    why : str
        Why that tree.
    nbytes : int
        Bytes of its blob; 0 for a duplicate.
    coded : bool
        Whether the planned tree could represent every chunk.
    """

    record: TensorRecord
    tree: str
    why: str
    nbytes: int
    coded: bool = True


@dataclass(frozen=True)
class Report:
    """What became of a checkpoint.

    Parameters
    ----------
    input_bytes, output_bytes : int
        Sizes of the files, every byte counted.
    tensors : tuple of TensorReport
        In the source's order.
    """

    input_bytes: int
    output_bytes: int
    tensors: tuple[TensorReport, ...]
