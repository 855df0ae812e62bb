"""One tensor's blob while it is written, and the record of it."""

from __future__ import annotations

import xxhash

from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.records import DIGEST_DIGITS, TensorRecord
from tensorcomp.container.writer import CompressedWriter
from tensorcomp.metrics.distortion import ErrorSums
from tensorcomp.pipeline.encode import Encoded, TensorCoder
from tensorcomp.pipeline.header_estimate import six_digits
from tensorcomp.planning.checkpoint_plan import bound_to_json
from tensorcomp.selection.stored.pruned_checkpoint import PrunedTensor

_EXACT = ErrorSums()


class WrittenBlob:
    """One tensor's blob while it is written, and the errors of what it decodes to."""

    def __init__(
        self, writer: CompressedWriter, name: str, grid: ChunkGrid, coder: TensorCoder
    ) -> None:
        self.writer, self.name, self.coder = writer, name, coder
        self.errors = self.from_original = _EXACT
        self.keeps_zeros = True
        self.marks: set[int] = set()
        self.size = 0
        self._digest = xxhash.xxh3_128()
        writer.begin(name, coder.coder.pack() if grid.count > 1 else b"", grid.count)

    def add(self, encoded: Encoded) -> bool:
        """Write the next chunk; return whether it was the last."""
        self.size = self.writer.write_chunk(encoded.payload)
        if encoded.decoded is not None:
            self.from_original += encoded.from_original
            self.keeps_zeros &= encoded.keeps_zeros
            self.errors += encoded.errors
            self.marks.add(encoded.mark)
            self._digest.update(encoded.decoded)
        return self.size > 0

    def record(
        self,
        record: TensorRecord,
        digest: str,
        trees: list[int],
        pruned: PrunedTensor | None = None,
        *,
        chunk_elements: int = 0,
    ) -> TensorRecord:
        """Return the tensor's record.

        Parameters
        ----------
        record : TensorRecord
            What is known beforehand.
        digest : str
            Of the tensor as it was encoded.
        trees : list of int
            The numbers of its trees.
        pruned : PrunedTensor, optional
            What it was before, if it was pruned.
        chunk_elements : int
            Elements of a chunk at most, if not as in the manifest.
        """
        coder = self.coder
        errors = self.errors
        if pruned is not None:
            errors = pruned.cost if coder.lossless else self.from_original
        bound = {} if coder.bound is None else bound_to_json(coder.bound)
        return TensorRecord(
            name=record.name,
            dtype=record.dtype,
            shape=record.shape,
            role=record.role,
            nbytes=record.nbytes,
            tree=trees[0],
            fallback=trees[1] if len(trees) > 1 else None,
            digest=(digest if coder.lossless else self._digest.hexdigest())[:DIGEST_DIGITS],
            rel_l2=six_digits(errors.rel_l2),
            max_abs_error=six_digits(errors.max_abs),
            bound=bound,
            chunk_elements=chunk_elements,
            pruned=None if pruned is None else pruned.record,
        )
