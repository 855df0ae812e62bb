"""Lay out bundles: blobs that hold many small tensors of one dtype.

A blob of its own costs a small tensor some 75 bytes of header, checksum and digest, and more time
than its coding takes. A bundle decodes to the tensors that name it, in the manifest's order, and
zeros up to a whole row; it has one tree and one digest. Writers make it a single chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tensorcomp.container.records import TensorRecord
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import FormatError

_MAX_ROWS = 1 << 10  # since all are decoded for one tensor
ROW = 128  # elements: short, since rows of unlike scale are coded apart


class Span(NamedTuple):
    """Range of a tensor's bytes in its decoded bundle."""

    start: int
    stop: int


@dataclass(frozen=True)
class BundleLayout:
    """Range of each bundled tensor in its bundle.

    Parameters
    ----------
    spans : mapping of str to Span
        Of each tensor in a bundle.
    filled : mapping of str to int
        Bytes of each bundle that are tensors.
    """

    spans: Mapping[str, Span]
    filled: Mapping[str, int]

    @classmethod
    def of(cls, tensors: Mapping[str, TensorRecord]) -> BundleLayout:
        """Lay out the tensors that are in bundles."""
        spans = {}
        filled: dict[str, int] = {}
        for record in tensors.values():
            if record.bundle is not None:
                start = filled.get(record.bundle, 0)
                filled[record.bundle] = start + record.nbytes
                spans[record.name] = Span(start, start + record.nbytes)
        return cls(spans, filled)

    def share(self, record: TensorRecord, blob_bytes: int) -> int:
        """Return a tensor's part of the bytes of its bundle.

        It is in proportion to the tensor's size: the parts of a bundle's tensors add up to it.
        """
        assert record.bundle is not None
        start, stop = self.spans[record.name]
        filled = max(self.filled[record.bundle], 1)
        return blob_bytes * stop // filled - blob_bytes * start // filled


def check_bundles(
    tensors: Mapping[str, TensorRecord], bundles: Mapping[str, TensorRecord], layout: BundleLayout
) -> None:
    """Check that each bundle has a valid shape and is filled by its tensors.

    Raises `FormatError` if one is not.
    """
    for name, bundle in bundles.items():
        rows, filled = bundle.shape[0] if bundle.shape else 0, layout.filled.get(name, 0)
        if bundle.shape != (rows, ROW) or rows > _MAX_ROWS or not bundle.has_blob:
            raise FormatError(
                f"expected bundle {name!r} to be a blob of at most {_MAX_ROWS:,} rows of {ROW} "
                f"elements, got the shape {list(bundle.shape)}"
            )
        if numpy_dtype(bundle.dtype) is None:
            raise FormatError(f"bundle {name!r} has the type {bundle.dtype}, whose size is unknown")
        if not bundle.nbytes - bundle.nbytes // max(rows, 1) < filled <= bundle.nbytes:
            raise FormatError(
                f"bundle {name!r} has {bundle.nbytes:,} bytes, its tensors have {filled:,}"
            )
        if name in tensors:
            raise FormatError(f"{name!r} is a tensor and a bundle as well")
    for record in tensors.values():
        if record.bundle is not None and bundles[record.bundle].dtype != record.dtype:
            raise FormatError(f"tensor {record.name!r} is of another type than its bundle")
