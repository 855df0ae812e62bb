"""Read what the pickle of a torch file says of its tensors.

Persistent ids name storages, and the arguments of torch's functions that rebuild tensors say their
shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tensorcomp.checkpoints.layouts.pickle_objects import Made, Named, call, walk
from tensorcomp.checkpoints.layouts.pickle_reader import BytesReader, read_pickle
from tensorcomp.dtypes import dtype_bits

_STORAGES = {
    "Float": "F32", "Double": "F64", "Half": "F16", "BFloat16": "BF16", "Long": "I64",
    "Int": "I32", "Short": "I16", "Char": "I8", "Byte": "U8", "Bool": "BOOL",
    "ComplexFloat": "C64", "ComplexDouble": "C128", "QInt8": "I8", "QUInt8": "U8",
    "QInt32": "I32", "Untyped": "U8",
}  # fmt: skip
_DTYPES = {
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "uint16": "U16",
    "uint32": "U32", "uint64": "U64",
}  # fmt: skip
_REBUILDS = frozenset(
    f"torch._utils._rebuild_{kind}" for kind in ("tensor", "tensor_v2", "tensor_v3", "qtensor")
)
_WRAPS = frozenset(
    f"torch._utils._rebuild_{kind}" for kind in ("parameter", "parameter_with_state")
)
_FROM_TYPE = "torch._tensor._rebuild_from_type_v2"
_MAX_AXES = 64  # of a tensor of torch


class Storage(NamedTuple):
    """A storage: its key in the file, dtype if known, and number of elements."""

    key: str
    dtype: str | None
    size: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as the pickle describes it: elements of a storage.

    Parameters
    ----------
    storage : Storage
    offset : int
        First element.
    shape, stride : tuple of int
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...] | None:
        """Its axes, slowest first, if it fills a run of its storage; else None."""
        axes = sorted(range(len(self.shape)), key=lambda axis: (-self.stride[axis], axis))
        expected = 1
        for axis in reversed([axis for axis in axes if self.shape[axis] != 1]):
            if self.stride[axis] != expected:
                return None
            expected *= self.shape[axis]
        wide = iter([axis for axis in axes if self.shape[axis] != 1])
        # Axes of one element may stand anywhere: they keep their places.
        return tuple(next(wide) if self.shape[axis] != 1 else axis for axis in range(len(axes)))


@dataclass(frozen=True)
class NestedObjects:
    """The objects of a torch file, and the names of the arrays they hold."""

    root: Any
    names: dict[StoredTensor, str]


def read_objects(file: BytesReader) -> Any:
    """Return the objects of a torch pickle; a tensor is a `StoredTensor`."""
    return read_pickle(file, _storage, _make)


def _storage(key: Any) -> Any:
    """Return the storage of a persistent id."""
    match key:
        case ("storage", Named(kind), str(name), _, int(size), *view) if size >= 0:
            if view and view[0] is not None:
                return Made("view", key)
            kind = kind.rpartition(".")[2].removesuffix("Storage")
            return Storage(name, _STORAGES.get(kind), size)
    return Made("storage", key)


def _make(maker: Any, args: Any) -> Any:
    """Return a tensor for the functions that rebuild one."""
    name = maker.name if isinstance(maker, Named) else ""
    if name in _REBUILDS and isinstance(args, tuple):
        return _tensor(name, args) or Made(maker, args)
    if name in _WRAPS and isinstance(args, tuple) and args:
        return args[0] if isinstance(args[0], StoredTensor) else Made(maker, args)
    if name == _FROM_TYPE and isinstance(args, tuple) and len(args) >= 3:
        made = _make(args[0], args[2])
        return made if isinstance(made, StoredTensor) else Made(maker, args)
    return call(maker, args)


def _tensor(name: str, args: tuple[Any, ...]) -> StoredTensor | None:
    match args:
        case (Storage() as storage, int(offset), sizes, steps, *others):
            shape, stride = _sizes(sizes), _sizes(steps)
            if shape is None or stride is None or len(shape) != len(stride) or offset < 0:
                return None
            if not name.endswith("_v3"):
                return StoredTensor(storage, offset, shape, stride)
            # Of a storage of bytes; the dtype stands behind two flags.
            dtype = others[2].name if len(others) > 2 and isinstance(others[2], Named) else ""
            known = _DTYPES.get(dtype.rpartition(".")[2], "")
            bits = dtype_bits(known)
            if bits is not None:
                storage = Storage(storage.key, known, storage.size * 8 // bits)
                return StoredTensor(storage, offset, shape, stride)
    return None


def _sizes(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, Made) and isinstance(value.args, tuple) and len(value.args) == 1:
        value = value.args[0]  # torch.Size((…))
    if not isinstance(value, (tuple, list)) or len(value) > _MAX_AXES:
        return None
    sound = all(type(size) is int and 0 <= size < 1 << 62 for size in value)
    return tuple(value) if sound else None


def storages(objects: Any) -> Iterator[Storage]:
    """Yield the storages of all tensors that objects hold."""
    for _, item in walk(objects):
        if isinstance(item, StoredTensor):
            yield item.storage
        elif isinstance(item, Storage):
            yield item
