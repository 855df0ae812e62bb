"""Our own file: a safetensors file of blobs, and the manifest that says what they decode to."""

from tensorcomp.container.atomic import atomic_file
from tensorcomp.container.blob import Blob, ChunkGrid
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.records import PruningRecord, TensorRecord
from tensorcomp.container.writer import CompressedWriter

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
