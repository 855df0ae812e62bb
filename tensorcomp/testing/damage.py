"""Payloads that are cut, flipped or read as something else: an error or an array, nothing worse."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import decode, encode, join
from tensorcomp.codecs.tree import Node, Shared, fit, pack_shared, unpack_shared
from tensorcomp.errors import CodecError, NotRepresentable

Result = TypeVar("Result")

_SEED = 7
_EDGE = 9  # bytes at each end that are all tried
_MIDDLE = 10  # places tried in between
_LARGEST = 1 << 15  # bytes; damage does not get worse with size, only slower to try
# Tables of an entropy coder take up to half a megabyte whatever the array.
_SPARE_MEMORY = 4 << 20
_MEMORY_FACTOR = 16


def _encoded(node: Node, array: np.ndarray) -> tuple[np.ndarray, Shared, bytes] | None:
    """Return an array as codecs read it, what is shared, and the payload.

    None for a large array, and for one that the tree has no code for.
    """
    array = readable(array)
    if array.nbytes > _LARGEST:
        return None
    try:
        shared = fit(node, array)
        return array, shared, join(encode(node, array, shared))
    except NotRepresentable:
        return None


def check_damaged_payload(node: Node, array: np.ndarray) -> None:
    """Require that a damaged payload gives a `CodecError` or some array, in bounded memory."""
    encoded = _encoded(node, array)
    if encoded is None:
        return
    array, shared, payload = encoded
    for what, damaged in damages(payload):
        expect_error_or_array(node, damaged, spec_of(array), shared, what)


def check_damaged_shared(node: Node, array: np.ndarray) -> None:
    """Require the same of a sound payload with damaged shared bytes."""
    encoded = _encoded(node, array)
    if encoded is None:
        return
    array, shared, payload = encoded
    for what, damaged in damages(pack_shared(shared)):

        def attempt(damaged: bytes = damaged) -> Shared | None:
            try:
                return unpack_shared(node, damaged)
            except CodecError:
                return None

        other = _bounded(attempt, array.nbytes + len(damaged), what)
        if other is None:
            continue
        expect_error_or_array(node, payload, spec_of(array), other, f"shared bytes {what}")


def check_other_specs(node: Node, array: np.ndarray) -> None:
    """Require the same of a sound payload read as an array of another shape or dtype."""
    encoded = _encoded(node, array)
    if encoded is None:
        return
    array, shared, payload = encoded
    shapes = [(), (0,), (1,), (array.size + 1,), (array.size, 1), (1, array.size), (2, array.size)]
    specs = [ArraySpec(shape, array.dtype) for shape in shapes]
    specs += [ArraySpec(array.shape, np.dtype(kind)) for kind in ("u1", "<i2", "<f4", "<f8")]
    for spec in specs:
        expect_error_or_array(node, payload, spec, shared, f"read as {spec.dtype} {spec.shape}")


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield ways to damage bytes, with a name: cuts, flips, bytes set, bytes added."""
    if not data:
        return
    random = np.random.default_rng(_SEED)
    size = len(data)
    places = set(range(min(_EDGE, size))) | set(range(max(0, size - _EDGE), size))
    places |= set(random.integers(0, size, min(_MIDDLE, size)).tolist())
    for place in sorted(places):
        yield f"cut to {place}", data[:place]
        for value in (data[place] ^ (1 << int(random.integers(8))), 0xFF * int(random.integers(2))):
            if value != data[place]:
                yield (
                    f"with byte {place} = {value}",
                    data[:place] + bytes([value]) + data[place + 1 :],
                )
    yield "with a byte added", data + b"\0"
    yield "doubled", data + data
    for start in (1, 9):  # lengths that claim the impossible
        for claim in (1 << 31, (1 << 63) - 1, (1 << 64) - 1):
            if size >= start + 8:
                claimed = data[:start] + claim.to_bytes(8, "little") + data[start + 8 :]
                yield f"with {claim} at {start}", claimed


def expect_error_or_array(
    node: Node, payload: bytes, spec: ArraySpec, shared: Shared, what: str
) -> None:
    """Decode, and require a `CodecError` or an array of the spec, in bounded memory.

    Parameters
    ----------
    what : str
        How the payload is damaged, for the message.

    Raises
    ------
    AssertionError
        If anything else happens.
    """

    def attempt() -> np.ndarray | None:
        try:
            return decode(node, payload, spec, shared)
        except CodecError:
            return None

    found = _bounded(attempt, spec.nbytes + len(payload), what)
    if found is not None:
        assert found.shape == spec.shape, f"{what}: shape {found.shape} instead of {spec.shape}"
        assert found.dtype == spec.dtype, f"{what}: dtype {found.dtype} instead of {spec.dtype}"


def _bounded(attempt: Callable[[], Result], nbytes: int, what: str) -> Result:
    """Return what a call returns; it may allocate no more than a small multiple of `nbytes`."""
    limit = _MEMORY_FACTOR * nbytes + _SPARE_MEMORY
    for _ in range(2):  # what compiles a kernel takes memory for that, but only once
        tracemalloc.start(1)
        try:
            result = attempt()
            _, peak = tracemalloc.get_traced_memory()
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        finally:
            tracemalloc.stop()
        if peak <= limit:
            return result
    raise AssertionError(f"{what}: {peak} bytes allocated, at most {limit} are needed")
