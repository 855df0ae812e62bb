"""Tensors of a compressed file: which chunks they have, and how each is decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias

import numpy as np
import xxhash

from tensorcomp._names import shown
from tensorcomp.container.blob import Blob, ChunkGrid
from tensorcomp.container.chunks import ChunkCoder
from tensorcomp.container.records import DIGEST_DIGITS, TensorRecord
from tensorcomp.errors import CodecError, FormatError, TensorcompError, VerificationError


class StoredTensor:
    """One tensor of a compressed file: which chunks it has, and how to decode each.

    Attributes
    ----------
    record : TensorRecord
    grid : ChunkGrid
    """

    def __init__(
        self, where: str, record: TensorRecord, grid: ChunkGrid, blob: Blob, coder: ChunkCoder
    ) -> None:
        self._where = where
        self._blob = blob
        self._coder = coder
        self.record = record
        self.grid = grid

    @property
    def lossless(self) -> bool:
        """Whether the trees keep every bit."""
        return all(tree.lossless for tree in self._coder.trees)

    def decode_chunk(self, index: int, out: np.ndarray | None = None) -> np.ndarray:
        """Return chunk `index`, decoded into `out` if given.

        Raises
        ------
        FormatError
            If the chunk is damaged.
        """
        try:
            payload = self._blob.payload(index)
            if out is None:
                return self._coder.decode(payload, self.grid.spec(index), None)
            self._coder.decode_into(payload, out)
        except TensorcompError as error:
            raise_located(error, self._where, self.record.name, index)
        return out

    def decode_checked(self) -> np.ndarray:
        """Return all bytes, flat uint8, whose digest is the manifest's.

        Raises
        ------
        FormatError, VerificationError
            If the tensor is damaged.
        """
        chunks = [self.decode_chunk(index).reshape(-1) for index in range(self.grid.count)]
        flat: np.ndarray = np.concatenate(chunks).view(np.uint8)
        self.check_digest(xxhash.xxh3_128_hexdigest(flat))
        return flat

    def check_digest(self, found: str) -> None:
        """Compare the digest of all decoded bytes with the manifest's.

        Raises
        ------
        VerificationError
            If they differ.
        """
        if found[:DIGEST_DIGITS] != self.record.digest:
            raise VerificationError(
                f"{self._where}: tensor {shown(self.record.name)} decodes to other bytes than were "
                "compressed"
            )


class BundledTensor:
    """One tensor of a bundle; as a `StoredTensor` of one chunk.

    Its digest is the bundle's, which is checked whenever that is decoded.

    Parameters
    ----------
    record : TensorRecord
    grid : ChunkGrid
    take : callable
        Returns the tensor's bytes, flat uint8, not to be changed.
    lossless : bool
        Whether the bundle's trees keep every bit.
    """

    def __init__(
        self,
        record: TensorRecord,
        grid: ChunkGrid,
        take: Callable[[], np.ndarray],
        *,
        lossless: bool,
    ) -> None:
        self.record = record
        self.grid = grid
        self.lossless = lossless
        self._take = take

    def decode_chunk(self, index: int, out: np.ndarray | None = None) -> np.ndarray:
        """Return the tensor, its only chunk, decoded into `out` if given.

        Raises
        ------
        FormatError, VerificationError
            If the bundle is damaged.
        """
        assert index == 0
        decoded = self._take().view(self.grid.dtype).reshape(self.grid.shape)
        if out is None:
            return decoded.copy()
        out[...] = decoded
        return out

    def check_digest(self, found: str) -> None:
        """Do nothing: what was decoded was right."""


OpenTensor: TypeAlias = "StoredTensor | BundledTensor"


def raise_located(
    error: TensorcompError, where: str, name: str, chunk: int | None = None
) -> NoReturn:
    """Raise an error that says in which file, and for a CodecError in which tensor and chunk."""
    place = f"{where}: tensor {shown(name)}" + ("" if chunk is None else f", chunk {chunk}")
    if isinstance(error, CodecError):
        raise FormatError(f"{place}: {error}") from error
    if isinstance(error, FormatError) and not str(error).startswith(where):
        raise FormatError(f"{where}: {error}") from error
    raise error
