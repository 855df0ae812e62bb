"""Open compressed files: strict checks, whole tensors or single chunks."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.open import detect_format, open_checkpoint
from tensorcomp.checkpoints.safetensors.file import WHOLE_BYTES, SafetensorsFile
from tensorcomp.codecs.text import parse_text
from tensorcomp.codecs.tree import Node
from tensorcomp.container.bases import Bases, Opened
from tensorcomp.container.blob import Blob, ChunkCoder, index_bytes
from tensorcomp.container.bundles import Span
from tensorcomp.container.chunk_grid import ChunkGrid, chunk_grid
from tensorcomp.container.manifest import (
    METADATA_KEY,
    Manifest,
    is_compressed,
    is_manifest,
    manifest_from_text,
)
from tensorcomp.container.records import TensorRecord
from tensorcomp.container.tensor_blob import (
    BundleMember,
    TensorBlob,
    checked_bytes,
    decode_checked,
    raise_located,
)
from tensorcomp.errors import (
    FormatError,
    PlanError,
    TensorcompError,
    UnknownCodecError,
    located,
)
from tensorcomp.io.locations import is_remote

if TYPE_CHECKING:
    from tensorcomp.io.remote_file import RemoteFile

_BUNDLES_KEPT = 1 << 24  # bytes of decoded ones
MAX_EXPANSION = 1000  # times; real checkpoints shrink a few times, constant ones without limit


class CompressedFile(Checkpoint):
    """A compressed checkpoint, open for reading; a context manager.

    Parameters
    ----------
    source : Path, bytes or SafetensorsFile
        The file, which is mapped, or its bytes; closed with this.
    bases : sequence of Path
        Files and folders to find its bases in, before its own folder.
    depth : int
        How many files this one is a base of, at least.
    opened : dict, optional
        Of those that it is a base of: what they opened; see `Bases`.

    Attributes
    ----------
    manifest : Manifest
    nbytes : int
        The file's size.
    where : str
        Its name, for error messages.

    Raises
    ------
    CheckpointError
        If the file cannot be read or is not a safetensors file.
    FormatError
        If it is not a compressed checkpoint, or contradicts itself.
    """

    kind = "compressed"

    def __init__(
        self,
        source: Path | bytes | SafetensorsFile,
        bases: Sequence[Path] = (),
        depth: int = 0,
        opened: Opened | None = None,
    ) -> None:
        self._file = source if isinstance(source, SafetensorsFile) else open_safetensors(source)
        self.path, self.where, self.nbytes = self._file.path, self._file.where, self._file.nbytes
        text = (self._file.metadata or {}).get(METADATA_KEY)
        if text is None or not is_manifest(text):
            raise FormatError(
                "is a safetensors file, but not one that tensorcomp compressed", path=self.where
            )
        self.manifest: Manifest = manifest_from_text(text, self.where)
        stored, held = self.manifest.blobs.keys(), self._file.header.offsets.keys()
        if stored != held:
            odd = sorted(stored ^ held)[0]
            place = "manifest" if odd in stored else "file"
            raise FormatError(f"is in the {place} only", path=self.where, tensor=odd)
        self.aliases = self.manifest.aliases
        self._coders: dict[tuple[int, int | None], ChunkCoder] = {}
        self._decoded_bundles: dict[str, np.ndarray | TensorcompError] = {}
        self._decoding_bundle = threading.RLock()
        self._is_root = opened is None
        self._bases = (
            Bases(
                self.manifest,
                self.path,
                self.where,
                open_any,
                bases,
                depth,
                {} if opened is None else opened,
            )
            if self.manifest.bases
            else None
        )

    @functools.cached_property
    def tensors(self) -> tuple[TensorInfo, ...]:  # type: ignore[override]
        """Every tensor as it is once decoded, in the source's order."""
        return self.manifest.infos

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's decoded bytes, flat uint8; see `iter_bytes`."""
        return decode_checked(self.open_tensor(name))

    def template(self) -> SourceTemplate:
        """Return what rebuilds the original file."""
        return self.manifest.template

    @functools.cached_property
    def hidden(self) -> frozenset[str]:  # type: ignore[override]
        """Tensors that hold the rest of a file that had another format."""
        with located(path=self.where):
            return self.manifest.hidden

    def is_exact(self, name: str) -> bool:
        """Return whether a tensor decodes to what the original file held."""
        return self.manifest.stored(name).pruned is None and self.open_tensor(name).lossless

    def known_digest(self, name: str) -> str:
        """Return the digest of a tensor's bytes; empty for one in a bundle."""
        return self.manifest.stored(name).digest

    def find_bases(self) -> list[Path]:
        """Find the files that decoding needs too, and theirs; return where they are.

        Raises `MissingBaseError` if one is not there.
        """
        return [] if self._bases is None else self._bases.open_all()

    def check_expansion(self, max_bytes: int | None = None) -> None:
        """Refuse a file that claims to decode to far more than its size.

        Parameters
        ----------
        max_bytes : int, optional
            Limit of the bytes of all tensors once decoded; by default 1 GiB and `MAX_EXPANSION`
            times the file.

        Raises
        ------
        FormatError
            If they take more.
        """
        records = self.manifest.tensors.values()
        claimed, held = sum(r.nbytes for r in records if r.same_as is None), self.nbytes
        if self._bases is not None and max_bytes is None and claimed > default_max_bytes(held):
            held += self._bases.nbytes()  # as a copy has the size of its base
        check_claim(claimed, self._file, max_bytes, held)

    def check_codecs(self) -> None:
        """Require every codec of the file.

        Raises `FormatError` if no installed package has one, or it cannot be imported.
        """
        for planned in self.manifest.trees:
            self._tree(planned.tree)

    def _tree(self, text: str) -> Node:
        try:
            return parse_text(text)
        except PlanError as error:
            message = error.message
            if isinstance(error, UnknownCodecError):
                name = shown(error.codec)
                message = f"no codec is called {name}; install the package that brings it"
            raise FormatError(message, path=self.where) from error

    def record(self, name: str) -> TensorRecord:
        """Return the record of a tensor, by its name or an alias.

        Raises `FormatError` if there is no such tensor.
        """
        found = self.manifest.tensors.get(self.manifest.aliases.get(name, name))
        if found is None:
            raise FormatError(f"has no tensor {shown(name)}", path=self.where)
        return found

    @functools.cached_property
    def blobs(self) -> dict[str, int]:
        """Bytes of each blob."""
        return {name: end - begin for name, (begin, end) in self._file.header.offsets.items()}

    def blob_bytes(self, name: str) -> int:
        """Return the bytes a tensor takes in the file; see `Manifest.stored_bytes`."""
        return self.manifest.stored_bytes(self.record(name), self.blobs)

    def open_tensor(self, name: str) -> TensorBlob | BundleMember:
        """Open a tensor for decoding by chunks."""
        record = self.record(name)
        if record.same_as is not None:
            record = self.manifest.tensors[record.same_as]
        return self.open_blob(record) if record.bundle is None else self._open_bundled(record)

    def open_blob(self, record: TensorRecord) -> TensorBlob:
        """Open the blob of a tensor or bundle for decoding by chunks."""
        grid = self._grid(record)
        try:
            data = self._file.parts(record.name)
            blob = Blob.open(data, grid.count, record.name, self.manifest.version)
            coder, rows = self._coder(record, blob), None
            if coder.uses_reference and record.reference is not None and self._bases is not None:
                rows = functools.partial(self._bases.rows, record, grid)
            mapped = self._file.is_mapped
            return TensorBlob(grid, blob, coder, record, self.where, mapped, rows)
        except TensorcompError as error:
            raise_located(error, self.where, record.name)

    def _open_bundled(self, record: TensorRecord) -> BundleMember:
        assert record.bundle is not None
        bundle = self.open_blob(self.manifest.bundles[record.bundle])
        grid = chunk_grid(record.dtype, record.shape, record.nbytes, record.nbytes + 1)
        span = self.manifest.layout.spans[record.name]
        take = functools.partial(self._take, record.bundle, bundle, span)
        return BundleMember(record, grid, take, lossless=bundle.lossless)

    def _take(self, name: str, bundle: TensorBlob, span: Span) -> np.ndarray:
        """Return part of a decoded bundle, from a cache of the last ones."""
        decoded = self._decoded_bundles
        with self._decoding_bundle:  # other threads want the same one
            whole = decoded.pop(name, None)
            if whole is None:
                whole = self._decode_bundle(name, bundle)
                while decoded and sum(map(_size, decoded.values())) + _size(whole) > _BUNDLES_KEPT:
                    del decoded[next(iter(decoded))]
            decoded[name] = whole
        if isinstance(whole, TensorcompError):
            raise copy.copy(whole)  # since a traceback grows whenever it is raised
        return whole[slice(*span)]

    def _decode_bundle(self, name: str, bundle: TensorBlob) -> np.ndarray | TensorcompError:
        """Return a decoded bundle, or the error that each of its tensors raises."""
        try:
            whole = decode_checked(bundle)
        except TensorcompError as error:
            return error
        if whole[self.manifest.layout.filled[name] :].any():
            return FormatError("holds more than its tensors", path=self.where, tensor=name)
        return whole

    def _coder(self, record: TensorRecord, blob: Blob) -> ChunkCoder:
        used = record.tree, record.fallback
        coder = self._coders.get(used)
        if coder is None:
            texts = [self.manifest.trees[index].tree for index in used if index is not None]
            coder = self._coders[used] = ChunkCoder.alone(tuple(map(self._tree, texts)))
        shared = blob.shared()
        return ChunkCoder.unpack(coder.trees, shared) if shared else coder

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield a tensor's bytes chunk by chunk; check their digest at the end.

        Raises
        ------
        FormatError, VerificationError
            If the tensor is damaged.
        """
        return checked_bytes(self.open_tensor(name))

    def read_ahead(self) -> None:
        """Fetch early what follows in an object store, as tensors are read in order."""
        if self._file.remote is not None:
            spans = map(self._index_span, self.manifest.blobs.values())
            self._file.read_ahead(span for span in spans if span is not None)

    def _index_span(self, record: TensorRecord) -> tuple[int, int] | None:
        """Return where the index of a blob that is fetched by parts is among the file's data."""
        begin, stop = self._file.header.offsets[record.name]
        index = index_bytes(self._grid(record).count, self.manifest.version)
        return (max(stop - index, begin), stop) if stop - begin > WHOLE_BYTES else None

    def _grid(self, record: TensorRecord) -> ChunkGrid:
        elements = record.chunk_elements or self.manifest.chunk_elements
        return chunk_grid(record.dtype, record.shape, record.nbytes, elements)

    def fetch(self) -> None:
        """Fetch all of a file in an object store at once, into memory."""
        self._file.fetch()

    def close(self) -> None:
        """Release the file; it is unmapped with the last array that views it."""
        self._file.close()
        if self._bases is not None and self._is_root:
            self._bases.close()


def open_any(
    path: Path, bases: Sequence[Path] = (), depth: int = 0, opened: Opened | None = None
) -> Checkpoint:
    """Open a checkpoint file of any format; a compressed one is read decoded.

    `bases`, `depth` and `opened` are as for `CompressedFile`.
    """
    checkpoint = open_checkpoint(path)
    if isinstance(checkpoint, SafetensorsFile) and is_compressed(checkpoint):
        return CompressedFile(checkpoint, bases, depth, opened)
    return checkpoint


def default_max_bytes(nbytes: int) -> int:
    """Return the default limit of decoded bytes for a file size."""
    return (1 << 30) + MAX_EXPANSION * nbytes


def _size(decoded: np.ndarray | TensorcompError) -> int:
    return decoded.nbytes if isinstance(decoded, np.ndarray) else 0


def check_claim(claimed: int, file: SafetensorsFile, max_bytes: int | None, held: int = 0) -> None:
    """Refuse a file whose tensors take more than a limit; see `check_expansion`.

    `held` are its bytes and those of its bases.
    """
    held = held or file.nbytes
    limit = default_max_bytes(held) if max_bytes is None else max_bytes
    if claimed > limit:
        raise FormatError(
            f"{held:,} bytes that claim to be {claimed:,} once decoded, more than the "
            f"limit of {limit:,}; if you trust the file, set max_bytes=…",
            path=file.where,
        )


def open_safetensors(
    source: Path | bytes, *, mapped: bool = True, private: bool = False
) -> SafetensorsFile:
    """Open a safetensors file, or the bytes of one, whether compressed or not.

    Raises
    ------
    CheckpointError, FormatError
        If it cannot be read, or is something else: the message says what.
    """
    file: Path | bytes | RemoteFile = source
    if not isinstance(source, bytes):
        head = None
        if is_remote(source):
            from tensorcomp.io.remote_file import RemoteFile  # and threads

            file = RemoteFile(source)
            head = file.head
        kind = detect_format(source, head)  # which explains what is not a checkpoint at all
        if kind != "safetensors":
            raise FormatError(
                f"is a checkpoint of kind {kind!r}, not a safetensors file", path=source
            )
    return SafetensorsFile(file, mapped=mapped, private=private)
