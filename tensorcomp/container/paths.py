"""Where outputs stand beside their inputs, what they are called, and what is compressed already."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.container.manifest import METADATA_KEY, is_manifest
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import CheckpointError

COMPRESSED = ".tc.safetensors"
SAFETENSORS = ".safetensors"
FOLDER = ".tc"


def default_output(source: Path) -> Path:
    """Return where `compress` writes if it is not told."""
    if source.is_dir():
        return source.resolve().with_name(source.resolve().name + FOLDER)
    return source.with_name(compressed_name(source.name))


def compressed_name(name: str) -> str:
    """Return the name of a compressed file: model.tc.safetensors, model.pt.tc.safetensors."""
    return name.removesuffix(SAFETENSORS) + COMPRESSED


def restored_name(name: str, kind: str) -> str:
    """Return the name of the file of this kind that a compressed file restores."""
    name = name.removesuffix(COMPRESSED)
    if kind == "safetensors":
        return name + SAFETENSORS
    return name if "." in name else name + {"torch": ".pt"}.get(kind, f".{kind}")


def restored_path(file: Path) -> Path:
    """Return where a compressed file is restored if it is restored beside itself."""
    with CompressedFile(file) as opened:
        return file.with_name(restored_name(file.name, opened.manifest.recipe.kind))


@contextlib.contextmanager
def open_original(path: Path) -> Iterator[Checkpoint]:
    """Open a checkpoint that is not compressed.

    Raises
    ------
    CheckpointError
        If it cannot be read, or is compressed.
    """
    with open_checkpoint(path) as checkpoint:
        if is_compressed(checkpoint):
            raise CheckpointError("tensorcomp has compressed it already", path=path)
        yield checkpoint


def is_compressed(checkpoint: Checkpoint) -> bool:
    """Return whether a safetensors file is one that `compress` wrote."""
    return is_manifest((checkpoint.metadata or {}).get(METADATA_KEY))


def refuse_itself(source: Path, target: Path) -> None:
    """Require that an output is not its input.

    Raises
    ------
    CheckpointError
        If it is.
    """
    if target.exists() and source.exists() and target.samefile(source):
        raise CheckpointError("the output would replace the input; give another by -o", path=source)


def refuse_overlap(source: Path, target: Path) -> None:
    """Require that neither of an input folder and an output folder lies in the other.

    Raises
    ------
    CheckpointError
        If one does.
    """
    inner, outer = source.resolve(), target.resolve()
    if outer.is_relative_to(inner):
        raise CheckpointError("lies in the input folder; give another by -o", path=target)
    if inner.is_relative_to(outer):
        raise CheckpointError("holds the input folder; give another by -o", path=target)


def decoded_bytes(files: list[Path]) -> int:
    """Return the bytes of all tensors of compressed files once they are decoded."""
    total = 0
    for path in files:
        with CompressedFile(path) as file:
            total += sum(info.nbytes for info in file.tensors)
    return total


def compressed_files(folder: Path) -> list[Path]:
    """Return the compressed files of a folder.

    Raises
    ------
    CheckpointError
        If it holds none.
    """
    found = sorted(file for file in folder.rglob(f"*{COMPRESSED}") if file.is_file())
    if not found:
        raise CheckpointError(f"holds no *{COMPRESSED} file", path=folder)
    return found
