"""What became of a checkpoint and of each of its tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tensorcomp.container.manifest import Manifest
from tensorcomp.container.records import TensorRecord


@dataclass(slots=True)  # as `TensorRecord`
class TensorReport:
    """What became of one tensor; it is not changed once it is made.

    Parameters
    ----------
    record : TensorRecord
    tree : str
        Text of its tree; empty for a duplicate.
    why : str
        Why that tree.
    nbytes : int
        Bytes of its blob, or its part of its bundle's; 0 for a duplicate.
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


def report_of(
    manifest: Manifest, blobs: Mapping[str, int], output_bytes: int, refused: Collection[str]
) -> Report:
    """Return what became of a checkpoint.

    Parameters
    ----------
    manifest : Manifest
        As it was written.
    blobs : mapping of str to int
        The bytes of each blob.
    output_bytes : int
        Of the whole file.
    refused : collection of str
        Tensors of which the planned tree could not represent every chunk.
    """
    return Report(
        manifest.source_bytes,
        output_bytes,
        tuple(
            _tensor_report(manifest, record, blobs, coded=record.name not in refused)
            for record in manifest.tensors.values()
        ),
    )


def _tensor_report(
    manifest: Manifest, record: TensorRecord, blobs: Mapping[str, int], *, coded: bool
) -> TensorReport:
    planned = manifest.planned(record)
    if planned is None:
        return TensorReport(record, "", f"equals {record.same_as}", 0)
    size = manifest.layout.share(record, blobs[record.blob])
    return TensorReport(record, planned.tree, planned.why, size, coded)
