"""Open checkpoint files of any format, and write them back."""

from __future__ import annotations

import importlib
import io
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate
from tensorcomp.checkpoints.safetensors.header import MAX_HEADER_BYTES
from tensorcomp.errors import CheckpointError, FormatError
from tensorcomp.io.files import file_size, reading

if TYPE_CHECKING:
    import zipfile

Kind = Literal["safetensors", "torch", "npz"]

# A pickled protocol number, then torch's magic number 0x1950a86a20f9469cfc6c.
TORCH_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
MAX_DEFLATE_RATIO = 1032  # 258 bytes in two bits

_HEAD_BYTES = 512
_ADVICE = "give a .safetensors, .pt, .pth, .ckpt, .bin or .npz checkpoint"

_DISTRIBUTED = (
    "part of a distributed checkpoint; turn its folder into one file by "
    "torch.distributed.checkpoint.format_utils.dcp_to_torch_save(folder, 'model.pt') and give that"
)

# What other files begin with, and what to do about each.
_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself; run `git lfs pull`"),
    (b"# xet version", "a git-xet pointer, not the file itself; download it from its hub"),
    (b"GGUF", "a GGUF file; compress the checkpoint that it was made from"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file; save its weights as safetensors or .npz first"),
    (b"\x93NUMPY", "a single NumPy array; save it with np.savez first"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"(\xb5/\xfd", "a zstd archive; unpack it first"),
    (b"\xfd7zXZ\x00", "an xz archive; unpack it first"),
    (b"BZh", "a bzip2 archive; unpack it first"),
    (b"7z\xbc\xaf'\x1c", "a 7-Zip archive; unpack it first"),
    (b"Rar!", "a RAR archive; unpack it first"),
    # Texts, in lower case and without what may stand before them.
    (b"<!doctype html", "an HTML page, not a checkpoint; download it again, signed in if needed"),
    (b"<html", "an HTML page, not a checkpoint; download it again, signed in if needed"),
    (b"<?xml", "an XML text, perhaps a server's error message; download it again"),
    (b"{", f"a JSON text, not a checkpoint; {_ADVICE}"),
    (b"[", f"a JSON text, not a checkpoint; {_ADVICE}"),
)


def detect_format(path: Path) -> Kind:
    """Return the format of a checkpoint file.

    Parameters
    ----------
    path : Path
        A regular file, or a link to one.

    Returns
    -------
    str
        ``"safetensors"``, ``"torch"`` or ``"npz"``. The file may still prove damaged when opened.

    Raises
    ------
    CheckpointError
        If it is something else: the message says what, and what to do.
    """
    size = file_size(path)
    with reading(path), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not size:
        raise CheckpointError("is empty; download or save it again", path=path)
    if path.suffix.lower() == ".distcp":
        raise CheckpointError(f"is {_DISTRIBUTED}", path=path)  # one tensor of it alone would open
    if head.startswith(ZIP_MAGICS):
        return _zip_kind(path)
    if head.startswith(TORCH_LEGACY_MAGIC):
        return "torch"
    # First, since the length that begins a safetensors file may look like a shorter magic. A length
    # within the limit has four zero bytes, which no text and no other binary here has before a `{`.
    header_follows = head[8:9] == b"{"
    if header_follows and int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES:
        return "safetensors"
    other = _other(head)
    if other is not None:
        raise CheckpointError(f"is {other}", path=path)
    if header_follows:
        return "safetensors"  # with a false length: the parser says so
    raise CheckpointError(
        f"is of no known format (it begins with {head[:8]!r}); {_ADVICE}", path=path
    )


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip archive, whose file is open only while it is read.

    A damaged one is a `CheckpointError`.
    """
    import zipfile  # with all its compressors

    try:
        with reading(path):
            return zipfile.ZipFile(cast("IO[bytes]", _Reopened(path)))
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
        raise CheckpointError(
            f"a zip archive whose directory is missing or damaged, as when a download or a "
            f"full disk cut it short ({error}); get it again",
            path=path,
        ) from error


class _Reopened(io.RawIOBase):
    """File that is open only while it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes from the position."""
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._position)
            data = file.read(size)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move by as many bytes from the start, the position or the end; return where."""
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._position)
            self._position = file.seek(offset, whence)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seekable(self) -> bool:
        """Return True."""
        return True


def _zip_kind(path: Path) -> Kind:
    with open_zip(path) as archive:
        names = archive.namelist()
        start = min((entry.header_offset for entry in archive.infolist()), default=0)
    if start > 0:
        raise CheckpointError(f"is several zip archives, {_DISTRIBUTED}", path=path)
    folders = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == "data.pkl"}
    if any(f"{folder}/constants.pkl".lstrip("/") in names for folder in folders):
        raise CheckpointError(
            "is a TorchScript program; save the state_dict() of torch.jit.load(path)", path=path
        )
    if folders:
        return "torch"
    # np.savez() without an array leaves an archive without members.
    if not names or any(name.endswith(".npy") for name in names):
        return "npz"
    raise CheckpointError(
        f"is a zip archive that holds {shown(names[0])}, not a torch or NumPy checkpoint; "
        "unpack it first",
        path=path,
    )


def _other(head: bytes) -> str | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for magic, meaning in _MAGICS:
        if head.startswith(magic) or text.startswith(magic):
            return meaning
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it first"
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        if b"torch.distributed.checkpoint" in head:
            return _DISTRIBUTED
        return (
            "a plain Python pickle, which can run any code when loaded; "
            "load it where you trust it and save its tensors with torch.save or as safetensors"
        )
    return None


# By name: what a format needs is imported when such a file is met.
_HERE = "tensorcomp.checkpoints"
_OPENERS = {
    "safetensors": f"{_HERE}.safetensors.file:SafetensorsFile",
    "torch": f"{_HERE}.layouts.torch_file:TorchFile",
    "npz": f"{_HERE}.layouts.npz_file:NpzFile",
}
_RESTORERS = {
    "safetensors": f"{_HERE}.safetensors.file:restore_safetensors",
    "torch": f"{_HERE}.layouts.torch_restore:restore_torch",
    "npz": f"{_HERE}.layouts.npz_file:restore_npz",
}


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint file; its content decides on the format.

    Parameters
    ----------
    path : str or path-like
        A safetensors file, a torch file or an ``.npz`` archive. See `scan_folder` for folders.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, or of another format.

    Examples
    --------
    >>> with open_checkpoint("model.safetensors") as checkpoint:
    ...     for info in checkpoint.tensors:
    ...         data = checkpoint.read(info.name)
    """
    path = Path(path)
    checkpoint: Checkpoint = _named(_OPENERS[detect_format(path)])(path)
    return checkpoint


def restore(template: SourceTemplate, source: Checkpoint, out_path: str | os.PathLike[str]) -> None:
    """Write the checkpoint file of a template from its decoded tensors.

    A safetensors file is equal to the original in every byte; a torch file loads as an equal
    object, an ``.npz`` archive as equal arrays.

    Parameters
    ----------
    template : SourceTemplate
        From `Checkpoint.template`.
    source : Checkpoint
        Its tensors are those of `Checkpoint.tensors`, in the same order.
    out_path : str or path-like
        Created, or overwritten; give a temporary name and rename it when this returns.

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
    _named(_RESTORERS[template.kind])(template, source, Path(out_path))


def _named(place: str) -> Any:
    """Return the object ``module:name``; importing `pkgutil` takes longer."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)
