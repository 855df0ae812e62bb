"""Open checkpoint files of any format, and write them back."""

from __future__ import annotations

import contextlib
import importlib
import os
import weakref
from pathlib import Path
from typing import IO, Any, Literal

from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate
from tensorcomp.checkpoints.safetensors.header import MAX_HEADER_BYTES
from tensorcomp.errors import CheckpointError, FormatError, located
from tensorcomp.io.files import file_size, reading, writing
from tensorcomp.io.locations import is_remote, location

Kind = Literal[
    "safetensors", "torch", "distcp", "npz", "npy", "keras", "hdf5", "gguf", "onnx", "onnx-data",
    "bytes",
]  # fmt: skip

# A pickled protocol number, then torch's magic number 0x1950a86a20f9469cfc6c.
_TORCH_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP_NAMES: tuple[tuple[bytes, Kind], ...] = (
    (b"data.pkl", "torch"),
    (b"model.weights.h5", "keras"),
    (b".npy", "npz"),
)
_HEAD_BYTES = 512
_CONTROLS = frozenset([*range(32), 127]).difference(b"\t\n\r\f")
_ADVICE = "give a checkpoint, such as .safetensors, .pt, .gguf, .npz, .h5 or .onnx"

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_ONNX_START = b"\x08"  # the tag of the version; most models begin with it

_MAGICS: tuple[tuple[bytes, Kind], ...] = (
    (_TORCH_LEGACY_MAGIC, "torch"),
    (b"GGUF", "gguf"),
    (_HDF5_MAGIC, "hdf5"),
    (b"\x93NUMPY", "npy"),
)
# What files begin with that are no checkpoints, and what to do about each.
_STRANGERS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself; run `git lfs pull`"),
    (b"# xet version", "a git-xet pointer, not the file itself; download it from its hub"),
    # Texts, in lower case and without what may stand before them.
    (b"<!doctype html", "an HTML page, not a checkpoint; download it again, signed in if needed"),
    (b"<html", "an HTML page, not a checkpoint; download it again, signed in if needed"),
    (b"<?xml", "an XML text, perhaps a server's error message; download it again"),
    (b"{", f"a JSON text, not a checkpoint; {_ADVICE}"),
    (b"[", f"a JSON text, not a checkpoint; {_ADVICE}"),
)
_ARCHIVES = (
    (b"\x1f\x8b", "a gzip archive; unpack it for a better ratio"),
    (b"(\xb5/\xfd", "a zstd archive; unpack it for a better ratio"),
    (b"\xfd7zXZ\x00", "an xz archive; unpack it for a better ratio"),
    (b"BZh", "a bzip2 archive; unpack it for a better ratio"),
    (b"7z\xbc\xaf'\x1c", "a 7-Zip archive; unpack it for a better ratio"),
    (b"Rar!", "a RAR archive; unpack it for a better ratio"),
)


def detect_format(path: Path, head: bytes | None = None) -> Kind:
    """Return the format of a checkpoint file.

    Parameters
    ----------
    path : Path
        A regular file, or a link to one. Of a file in an object store, its first bytes decide.
    head : bytes, optional
        Those, where they are known.

    Returns
    -------
    str
        ``"bytes"`` if it is of no known format. The file may still prove damaged when opened.

    Raises
    ------
    CheckpointError
        If it is surely no checkpoint: the message says what it is, and what to do.
    """
    head = _head(path) if head is None else head
    if not head:
        raise CheckpointError("is empty; download or save it again", path=path)
    if head.startswith(_ZIP_MAGICS):
        return _zip_kind(path, head)
    # First, since the length that begins a safetensors file may look like a shorter magic. A length
    # within the limit has four zero bytes, which no text and no other binary here has before a `{`.
    length = int.from_bytes(head[:8], "little")
    header_follows = head[8:9] == b"{" and _is_text(head[8 : 8 + min(length, 64)])
    if header_follows and length <= MAX_HEADER_BYTES:
        return "safetensors"
    for magic, kind in _MAGICS:
        if head.startswith(magic):
            return kind
    if _hdf5_follows(path, head):
        return "hdf5"
    stranger = _not_a_checkpoint(head[:_HEAD_BYTES])
    if stranger is not None:
        raise CheckpointError(f"is {stranger}", path=path)
    onnx = _onnx_kind(path, head)
    if onnx is not None:
        return onnx
    return "safetensors" if header_follows else "bytes"  # with a false length: the parser says so


def _head(path: Path) -> bytes:
    """Return the first bytes of a file; of one in an object store, all that a request brings."""
    if is_remote(path):
        from tensorcomp.io.remote_file import RemoteFile

        with contextlib.closing(RemoteFile(path)) as remote:
            return remote.head
    file_size(path)
    with reading(path), path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def _hdf5_follows(path: Path, head: bytes) -> bool:
    """Return whether an HDF5 file begins behind a block of its user, as MATLAB's do."""
    if is_remote(path):
        return any(head.startswith(_HDF5_MAGIC, _HEAD_BYTES << shift) for shift in range(8))
    with reading(path), path.open("rb") as file:
        place, data = _HEAD_BYTES, b" "
        while data and data != _HDF5_MAGIC:
            file.seek(place)
            place, data = 2 * place, file.read(len(_HDF5_MAGIC))
        return bool(data)


def _onnx_kind(path: Path, head: bytes) -> Kind | None:
    """Return how a file without a magic belongs to an ONNX model, if it does."""
    from tensorcomp.checkpoints.layouts.onnx_file import is_onnx, is_onnx_data

    if is_remote(path):
        named = path.suffix == ".onnx" and head.startswith(_ONNX_START)
        return "onnx" if named else None
    if head.startswith(_ONNX_START) and is_onnx(path):
        return "onnx"
    return "onnx-data" if is_onnx_data(path) else None


def _zip_kind(path: Path, head: bytes) -> Kind:
    if is_remote(path):  # the directory is at its end; the first names say as much
        named = (kind for name, kind in _ZIP_NAMES if name in head)
        return "distcp" if path.suffix == ".distcp" else next(named, "bytes")
    from tensorcomp.checkpoints.layouts.zip_members import open_zip  # and all of zipfile

    with open_zip(path) as archive:
        names = archive.namelist()
        start = min((entry.header_offset for entry in archive.infolist()), default=0)
    if start > 0 or path.suffix == ".distcp":
        return "distcp"  # several archives in a row
    if any(name.rpartition("/")[2] == "data.pkl" for name in names):
        return "torch"
    if "model.weights.h5" in names:
        return "keras"
    # np.savez() without an array leaves an archive without members.
    return "npz" if not names or any(name.endswith(".npy") for name in names) else "bytes"


def _not_a_checkpoint(head: bytes) -> str | None:
    """Return what a file surely is, where it is no checkpoint at all."""
    if not _is_text(head):
        return None
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for magic, meaning in _STRANGERS:
        if head.startswith(magic) or text.startswith(magic):
            return meaning
    if head.isascii():
        return f"a text (it begins with {head[:16]!r}), not a checkpoint; {_ADVICE}"
    return None


def _is_text(data: bytes) -> bool:
    """Return whether no control characters but those of lines are among bytes."""
    return _CONTROLS.isdisjoint(data)


def describe_unknown(path: Path) -> str:
    """Return what a file of no known format seems to be."""
    head = _head(path)[:_HEAD_BYTES]
    for magic, meaning in _ARCHIVES:
        if head.startswith(magic):
            return meaning
    if path.suffix.lower() == ".onnx":
        return "no ONNX model, or one that is cut short or damaged"
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it for a better ratio"
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return "a plain Python pickle"
    return f"of no known format (it begins with {head[:8]!r})"


# By name: what a format needs is imported when such a file is met.
_HERE = "tensorcomp.checkpoints"
_OPENERS: dict[Kind, str] = {
    "torch": f"{_HERE}.layouts.torch_file:torch_layout",
    "distcp": f"{_HERE}.layouts.torch_file:distributed_layout",
    "npz": f"{_HERE}.layouts.numpy_file:npz_layout",
    "npy": f"{_HERE}.layouts.numpy_file:npy_layout",
    "gguf": f"{_HERE}.layouts.gguf_file:gguf_layout",
    "hdf5": f"{_HERE}.layouts.hdf5_file:hdf5_layout",
    "keras": f"{_HERE}.layouts.hdf5_file:keras_layout",
    "onnx": f"{_HERE}.layouts.onnx_file:onnx_layout",
    "onnx-data": f"{_HERE}.layouts.onnx_file:onnx_data_layout",
}
_RESTORERS = {
    "safetensors": f"{_HERE}.safetensors.file:restore_safetensors",
    "layout": f"{_HERE}.layouts.restore:restore_layout",
    # Of files of format 7 and before.
    "torch": f"{_HERE}.earlier.torch_restore:restore_torch",
    "npz": f"{_HERE}.earlier.npz_restore:restore_npz",
}


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint file; its content decides on the format.

    Parameters
    ----------
    path : str or path-like
        See `scan_folder` for folders. A file of no known format is a tensor of bytes.

    Raises
    ------
    CheckpointError
        If the file is missing or damaged, or surely no checkpoint.

    Examples
    --------
    >>> with open_checkpoint("model.safetensors") as checkpoint:
    ...     for info in checkpoint.tensors:
    ...         data = checkpoint.read(info.name)
    """
    path = location(path)
    if is_remote(path):
        return _open_remote(path)
    kind = detect_format(path)
    if kind == "safetensors":
        from tensorcomp.checkpoints.safetensors.file import SafetensorsFile

        return SafetensorsFile(path)
    from tensorcomp.checkpoints.layouts.layout import Layout, LayoutCheckpoint

    layout = _named(_OPENERS[kind])(path) if kind in _OPENERS else Layout("bytes", ())
    return LayoutCheckpoint(path, layout)


def _open_remote(path: Path) -> Checkpoint:
    """Open a file in an object store: what no ranges are read of is copied first."""
    from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
    from tensorcomp.io.remote_file import RemoteFile
    from tensorcomp.io.spool import local_copy

    remote = RemoteFile(path)
    with located(path=path):
        if detect_format(path, remote.head) == "safetensors":
            return SafetensorsFile(remote)
    with contextlib.closing(remote), contextlib.ExitStack() as stack:
        checkpoint = open_checkpoint(stack.enter_context(local_copy(path)))
        weakref.finalize(checkpoint, stack.pop_all().close)
        return checkpoint


def restore(
    template: SourceTemplate, source: Checkpoint, out: str | os.PathLike[str] | IO[bytes]
) -> None:
    """Write the checkpoint file of a template from its decoded tensors.

    It is equal to the original in every byte, but for what lossy compression changes. Of files of
    format 7 and before, a torch file loads as an equal object, an ``.npz`` archive as equal arrays.

    Parameters
    ----------
    template : SourceTemplate
        From `Checkpoint.template`.
    source : Checkpoint
        Its tensors are those of `Checkpoint.tensors`, in the same order.
    out : str, path-like or binary file
        Created, or overwritten; give a temporary name and rename it when this returns. An open file
        has a name by which it is written, but for one of safetensors, which is written in order.

    Raises
    ------
    CheckpointError
        If the file cannot be written.
    FormatError
        If the template is damaged or does not fit the tensors.
    """
    if template.kind not in _RESTORERS:
        raise FormatError(
            f"cannot write a checkpoint of kind {template.kind!r}; known: {', '.join(_RESTORERS)}"
        )
    restorer = _named(_RESTORERS[template.kind])
    if template.kind != "safetensors":
        named = out if isinstance(out, (str, os.PathLike)) else out.name
        restorer(template, source, Path(named))
    elif isinstance(out, (str, os.PathLike)):
        with writing(path := Path(out)), path.open("wb") as file:
            restorer(template, source, file)
    else:
        restorer(template, source, out)


def _named(place: str) -> Any:
    """Return the object ``module:name``; importing `pkgutil` takes longer."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)
