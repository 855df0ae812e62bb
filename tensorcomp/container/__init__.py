"""Our own file: a safetensors file of blobs, and the manifest that says what they decode to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp.lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.container.atomic import atomic_file
    from tensorcomp.container.blob import Blob, ChunkGrid
    from tensorcomp.container.manifest import Manifest
    from tensorcomp.container.reader import CompressedFile
    from tensorcomp.container.records import PruningRecord, TensorRecord
    from tensorcomp.container.writer import CompressedWriter

_HOMES = {
    "Blob": "blob",
    "ChunkGrid": "blob",
    "CompressedFile": "reader",
    "CompressedWriter": "writer",
    "Manifest": "manifest",
    "PruningRecord": "records",
    "TensorRecord": "records",
    "atomic_file": "atomic",
}

__all__ = [
    "Blob",
    "ChunkGrid",
    "CompressedFile",
    "CompressedWriter",
    "Manifest",
    "PruningRecord",
    "TensorRecord",
    "atomic_file",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
