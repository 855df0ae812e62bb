"""Summarize compressed and other files, counted from bytes in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.records import TensorRecord
from tensorcomp.pipeline.summary import CheckpointSummary
from tensorcomp.pipeline.tensor_summary import TensorSummary


class FileResult(NamedTuple):
    """Manifest and sizes of one compressed file.

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

    manifest: Manifest
    blobs: Mapping[str, int]
    output_bytes: int
    refused: Collection[str] = ()

    @property
    def input_bytes(self) -> int:
        """Bytes of the original."""
        return self.manifest.source_bytes

    def stored(self, record: TensorRecord) -> int:
        """Return the bytes of a tensor's blob, or its part of its bundle's; 0 for a duplicate."""
        if record.same_as is not None:
            return 0
        if record.bundle is None:
            return self.blobs[record.name]
        return self.manifest.layout.share(record, self.blobs[record.bundle])

    def summary(self, file: str | None = None) -> CheckpointSummary:
        """Return the figures of each tensor; `file` names one of several."""
        sizes = {r.name: self.stored(r) for r in self.manifest.tensors.values()}
        rows = _rows(self.manifest, sizes, file, self.refused)
        return CheckpointSummary(self.input_bytes, self.output_bytes, rows, compressed=True)


def summarise_compressed(opened: CompressedFile, file: str | None = None) -> CheckpointSummary:
    """Return the figures of a compressed file; `file` names one of several."""
    manifest = opened.manifest
    sizes = {name: opened.blob_bytes(name) for name in manifest.tensors}
    rows = _rows(manifest, sizes, file)
    return CheckpointSummary(manifest.source_bytes, opened.nbytes, rows, compressed=True)


def _rows(
    manifest: Manifest, sizes: Mapping[str, int], file: str | None, refused: Collection[str] = ()
) -> tuple[TensorSummary, ...]:
    from tensorcomp.planning.roles.classify import classify_all

    roles = classify_all(manifest.infos)
    rows = []
    for record in manifest.tensors.values():
        stored = manifest.stored(record.name)
        planned = manifest.planned(record)
        role = roles[record.name]
        row = TensorSummary(
            name=record.name,
            dtype=record.dtype,
            shape=record.shape,
            role=record.role,
            nbytes=record.nbytes,
            stored=sizes[record.name],
            tree=planned.tree if planned else None,
            why=planned.why if planned else "",
            same_as=record.same_as,
            file=file,
            rel_l2=stored.rel_l2,
            max_abs_error=stored.max_abs_error,
            role_why=role.why if role.role == record.role else "",  # or the file is older
            pruned=stored.pruned,
            bound=stored.bound,
            coded=record.name not in refused,
        )
        rows.append(row)
    return (*rows, *_tied(rows, manifest.aliases.items()))


def summarise_checkpoint(checkpoint: Checkpoint, file: str | None = None) -> CheckpointSummary:
    """Return the figures of a checkpoint that is not compressed.

    Parameters
    ----------
    checkpoint : Checkpoint
    file : str, optional
        Its name, where it is one of several.
    """
    from tensorcomp.planning.roles.classify import classify_all

    roles = classify_all(checkpoint.tensors)
    rows = [
        TensorSummary(
            name=info.name,
            dtype=info.dtype,
            shape=info.shape,
            role=roles[info.name].role,
            nbytes=info.nbytes,
            stored=info.nbytes,
            file=file,
            role_why=roles[info.name].why,
        )
        for info in checkpoint.tensors
    ]
    rows += _tied(rows, checkpoint.aliases.items())
    return CheckpointSummary(checkpoint.nbytes, checkpoint.nbytes, tuple(rows), compressed=False)


def _tied(rows: Iterable[TensorSummary], aliases: Iterable[tuple[str, str]]) -> list[TensorSummary]:
    by_name = {row.name: row for row in rows}
    return [
        TensorSummary(
            name=name,
            dtype=by_name[target].dtype,
            shape=by_name[target].shape,
            role=by_name[target].role,
            nbytes=0,
            stored=0,
            same_as=target,
            tied=True,
            file=by_name[target].file,
            rel_l2=by_name[target].rel_l2,
            max_abs_error=by_name[target].max_abs_error,
            role_why=by_name[target].role_why,
            pruned=by_name[target].pruned,
        )
        for name, target in aliases
    ]
