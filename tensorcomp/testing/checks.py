"""The checks: what a codec promises, asserted on every array of a set."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorcomp.codecs.base import Transform, spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import decode, encode, join
from tensorcomp.codecs.text import format_tree, parse_tree
from tensorcomp.codecs.tree import Node, Shared, fit, pack_shared, unpack_shared
from tensorcomp.errors import NotRepresentable
from tensorcomp.testing.arrays import nasty_arrays, reference_of
from tensorcomp.testing.damage import (
    check_damage,
    damaged_payloads,
    damaged_shared,
    other_specs,
)
from tensorcomp.testing.tree_checks import TREE_CHECKS

MAX_ADDED = 64  # bytes that a payload may have more than its array
_CODED = 1  # the mark of a payload that is not the raw fallback
_SHOWN = 6  # failures that a message lists

ArrayCheck = Callable[[Node, np.ndarray], None]


@dataclass(frozen=True)
class CodecCheck:
    """One check of one tree; a call runs it.

    It raises an `AssertionError` that says what is wrong.

    Parameters
    ----------
    tree : Node
    name : str
        What is checked.
    run : callable
        Called without arguments.
    """

    tree: Node
    name: str
    run: Callable[[], None]

    def __call__(self) -> None:
        """Run the check."""
        self.run()

    def __str__(self) -> str:
        return f"{format_tree(self.tree)}-{self.name}"


def codec_checks(
    *trees: str | Node, arrays: Mapping[str, np.ndarray] | None = None
) -> list[CodecCheck]:
    """Return the contract of codecs as checks, to be called one by one.

    Parameters
    ----------
    *trees : str or Node
        Each puts a codec to be tested where it may stand, with its configuration:
        ``"huffman(contexts=8)"``, ``"raw(bytes=zstd)"``.
    arrays : mapping of str to numpy.ndarray, optional
        Inputs by name; `nasty_arrays` by default. Add to those what your codec is made for.

    Returns
    -------
    list of CodecCheck
        In a stable order; ``str`` of each is a name for a test.

    Raises
    ------
    PlanError
        If a text is not a tree.

    Examples
    --------
    >>> from tensorcomp.testing import codec_checks
    >>> for check in codec_checks("raw"):
    ...     check()
    """
    nodes = [parse_tree(tree) if isinstance(tree, str) else tree for tree in trees]
    return [check for node in nodes for check in _checks_of(node, arrays)]


def _checks_of(node: Node, arrays: Mapping[str, np.ndarray] | None) -> Iterable[CodecCheck]:
    for name, whole in TREE_CHECKS.items():
        yield CodecCheck(node, name, functools.partial(whole, node))
    for name, single in _ARRAY_CHECKS.items():
        yield CodecCheck(node, name, functools.partial(_on_all, single, node, arrays))
    yield CodecCheck(node, "codes some array itself", lambda: _check_used(node, arrays))


def _on_all(check: ArrayCheck, node: Node, arrays: Mapping[str, np.ndarray] | None) -> None:
    """Run a check on every array; report all that fail, not only the first."""
    failures = []
    first: Exception | None = None
    for name, array in (nasty_arrays() if arrays is None else arrays).items():
        try:
            check(node, array)
        except Exception as error:  # whatever a codec raises is a finding
            first = first or error
            failures.append(f"{name}: {type(error).__name__}: {error}")
    if failures:
        more = f"\n  … and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
        listed = "\n  ".join(failures[:_SHOWN])
        raise AssertionError(f"{format_tree(node)} fails on\n  {listed}{more}") from first


def payload_of(node: Node, array: np.ndarray, shared: Shared | None = None) -> bytes | None:
    """Return an array's payload.

    None where the transform at the root cannot represent the array.

    A tree whose root is a serializer takes every array.
    """
    try:
        return join(encode(node, array, shared, reference=reference_of(node, array)))
    except NotRepresentable:
        if not isinstance(node.codec, Transform):
            raise
        return None


def assert_same(found: np.ndarray, wanted: np.ndarray, *, bits: bool) -> None:
    """Require equal shapes and dtypes, and equal bits if asked."""
    assert isinstance(found, np.ndarray), f"{type(found).__name__} instead of an array"
    assert found.shape == wanted.shape, f"shape {found.shape} instead of {wanted.shape}"
    assert found.dtype == wanted.dtype, f"dtype {found.dtype} instead of {wanted.dtype}"
    if bits:
        one, other = (np.frombuffer(array.tobytes(), np.uint8) for array in (found, wanted))
        differ = np.flatnonzero(one != other)
        assert not differ.size, f"{differ.size} bytes differ, first {differ[0]}"


def assert_few_added(payload: bytes, array: np.ndarray) -> None:
    """Require that a payload is not much larger than its array."""
    added = len(payload) - array.nbytes
    assert added <= MAX_ADDED, f"{added} bytes more than the array, {MAX_ADDED} are allowed"


def _check_restores(node: Node, array: np.ndarray) -> None:
    """Require that shape, dtype and, if lossless, every bit come back."""
    payload = payload_of(node, array)
    if payload is not None:
        found = decode(node, payload, spec_of(array), reference=reference_of(node, array))
        assert_same(found, array, bits=node.lossless)


def _check_out(node: Node, array: np.ndarray) -> None:
    """Require that `decode` into a given array gives what it gives without."""
    wanted = readable(array)
    payload = payload_of(node, array)
    if payload is None:
        return
    spec = spec_of(wanted)
    out = np.empty(wanted.shape, wanted.dtype)
    out.reshape(-1).view(np.uint8)[:] = 0xA5
    known = reference_of(node, wanted)
    given = decode(node, np.frombuffer(payload, np.uint8), spec, out=out, reference=known)
    assert given is out, "decode returns another array than the one it was given"
    assert_same(out, decode(node, payload, spec, reference=known), bits=True)


def _check_input_kept(node: Node, array: np.ndarray) -> None:
    """Require that neither the array nor the payload is written to."""
    before = array.tobytes()
    payload = payload_of(node, array)
    with contextlib.suppress(NotRepresentable):
        fit(node, readable(array), reference_of(node, array))
    assert array.tobytes() == before, "encode or fit changes its input"
    if payload is not None:
        data = np.frombuffer(payload, np.uint8).copy()
        decode(node, data, spec_of(readable(array)), reference=reference_of(node, readable(array)))
        assert data.tobytes() == payload, "decode changes the payload"


def _check_deterministic(node: Node, array: np.ndarray) -> None:
    """Require equal bytes of equal arrays: again, from a copy, from a view with gaps."""
    payload = payload_of(node, array)
    assert payload_of(node, array) == payload, "a second call gives other bytes"
    assert payload_of(node, array.copy(order="C")) == payload, "a copy gives other bytes"
    assert payload_of(node, np.asfortranarray(array)) == payload, "Fortran order gives other bytes"
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    assert payload_of(node, wide[..., 0]) == payload, "a view with gaps gives other bytes"


def _check_bounded(node: Node, array: np.ndarray) -> None:
    """Require that a payload is never much larger than its array."""
    payload = payload_of(node, array)
    if payload is not None:
        assert_few_added(payload, array)


def _check_shared(node: Node, array: np.ndarray) -> None:
    """Require that what a sample teaches can be packed, and serves other chunks."""
    array = readable(array)
    samples = [array] if array.ndim == 0 else [array, array[::2], array[:1]]
    for sample in samples:
        known = reference_of(node, readable(sample))
        try:
            shared = fit(node, readable(sample), known)
        except NotRepresentable:
            assert isinstance(node.codec, Transform), "fit of a serializer refuses an array"
            continue
        quiet = not node.codec.shares(spec_of(sample))
        learned = node.codec.fit(readable(sample), **_given(known))
        assert not (quiet and learned), "fit learns what shares denies"
        packed = pack_shared(shared)
        assert fit(node, readable(sample), known) == shared, (
            "fit gives something else the second time"
        )
        assert unpack_shared(node, packed) == shared, "what chunks share is not unpacked as packed"
        payload = payload_of(node, array, shared)
        if payload is None:
            continue
        assert_few_added(payload, array)
        known = reference_of(node, array)
        found = decode(node, payload, spec_of(array), shared, reference=known)
        assert_same(found, array, bits=node.lossless)


def _given(reference: np.ndarray | None) -> dict[str, Any]:
    """Return the keyword for a reference, if there is one."""
    return {} if reference is None else {"reference": reference}


def _check_parts(node: Node, array: np.ndarray) -> None:
    """Require that `parts` gives names, shapes and dtypes of what `encode` gives."""
    codec = node.codec
    if not isinstance(codec, Transform):
        return
    array = readable(array)
    try:
        parts = codec.encode(array, **_given(reference_of(node, array)))
    except NotRepresentable:
        return
    specs = codec.parts(spec_of(array))
    assert list(specs) == list(parts), f"parts promises {list(specs)}, encode gives {list(parts)}"
    for name, spec in specs.items():
        part = parts[name]
        found = list(part.shape)
        assert part.dtype == spec.dtype, f"{name}: {part.dtype} instead of {spec.dtype}"
        if -1 in spec.shape:
            assert spec.shape.count(-1) == 1, f"{name}: more than one -1 in {spec.shape}"
            assert part.size <= array.size, f"{name}: more elements than the input has"
            axis = spec.shape.index(-1)
            assert part.size or found[axis : axis + 1] == [0], f"{name}: {found} without elements"
            found[axis : axis + 1] = [-1]
        assert found == list(spec.shape), f"{name}: {part.shape} instead of {spec.shape}"


def _check_used(node: Node, arrays: Mapping[str, np.ndarray] | None) -> None:
    """Require that not every array is stored raw: else the other checks prove nothing."""
    for array in (nasty_arrays() if arrays is None else arrays).values():
        payload = payload_of(node, array)
        if array.size and payload is not None and payload[0] == _CODED:
            return
    raise AssertionError(f"{format_tree(node)} codes no array itself; give one that it is made for")


_ARRAY_CHECKS: dict[str, ArrayCheck] = {
    "restores arrays": _check_restores,
    "decodes into a given array": _check_out,
    "keeps its input": _check_input_kept,
    "is deterministic": _check_deterministic,
    "adds few bytes": _check_bounded,
    "shares between chunks": _check_shared,
    "gives the parts that it promises": _check_parts,
    "refuses damaged payloads": functools.partial(check_damage, damaged_payloads),
    "refuses damaged shared bytes": functools.partial(check_damage, damaged_shared),
    "refuses other shapes and dtypes": functools.partial(check_damage, other_specs),
}
