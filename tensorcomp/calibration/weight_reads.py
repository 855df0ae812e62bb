"""Hear of the operations that read weights, in any layer or function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_COPIES = (_aten._to_copy.default, _aten.clone.default)
# Where operations take their matrix; the inputs stand before it.
_PRODUCTS: dict[Any, int] = {
    _aten.mm.default: 1,
    _aten.bmm.default: 1,
    _aten.addmm.default: 2,
    _aten.baddbmm.default: 2,
}


class Read(NamedTuple):
    """An operation that reads weights; their names by place of argument."""

    function: Any
    args: Sequence[Any]
    options: Mapping[str, Any]
    result: Any
    names: Mapping[int, str]

    def product(self) -> int | None:
        """Return where the weight stands that is the matrix of a product, if one is."""
        at = _PRODUCTS.get(self.function)
        return at if at in self.names else None

    def is_convolution(self) -> bool:
        """Return whether a weight is the kernel of a plain convolution."""
        return self.function is _aten.convolution.default and 1 in self.names and not self.args[6]

    def is_lookup(self) -> bool:
        """Return whether a weight is the table of a lookup of rows."""
        return self.function is _aten.embedding.default


class WeightReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls back at each operation that reads a weight, a view of it, or a copy.

    Operations that only make such a view or copy are left out.

    Attributes
    ----------
    weights : mapping of str to torch.Tensor
    """

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor],
        heard: Callable[[Read], Callable[[], None] | None],
    ) -> None:
        """Take what is called: it may return what to call when autograd knows the result."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.weights = weights
        self._heard = heard
        self._then: Callable[[], None] | None = None
        self._copies: dict[int, tuple[str, int, torch.Tensor]] = {}
        self._in_storage: dict[int, list[str]] = {}
        for name, weight in weights.items():
            self._in_storage.setdefault(_storage(weight), []).append(name)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hear of operations in this block only, not where layers run again."""
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # a layer of attention in one operation
        torch.clear_autocast_cache()  # of copies that were made before this block
        try:
            with self:
                yield
            self._finish()
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            self._then = None
            self._copies.clear()

    def offset(self, name: str, tensor: torch.Tensor) -> int:
        """Return where a view or a copy begins in a weight's memory, in elements."""
        _, first, _ = self._copies.get(_storage(tensor), (name, 0, tensor))
        if _storage(tensor) not in self._copies:
            first = -int(self.weights[name].storage_offset())
        return int(tensor.storage_offset()) + first

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and tell of it if it reads weights."""
        self._finish()
        result = func(*args, **(kwargs or {}))
        tensors = {at: arg for at, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
        names = {at: name for at, arg in tensors.items() if (name := self._name_of(arg))}
        if func in _COPIES and 0 in names and result.stride() == args[0].stride():
            # Kept, lest its place be reused.
            self._copies[_storage(result)] = names[0], self.offset(names[0], args[0]), result
        elif names and _storages(result).isdisjoint(_storage(tensors[at]) for at in names):
            self._then = self._heard(Read(func, args, kwargs or {}, result, names))
        return result

    def _finish(self) -> None:
        if (then := self._then) is not None:
            self._then = None
            then()

    def _name_of(self, tensor: torch.Tensor) -> str | None:
        """Return which of the weights a tensor is, or is a view or a copy of."""
        key = _storage(tensor)
        if key in self._copies:
            return self._copies[key][0]
        for name in self._in_storage.get(key, ()):
            if 0 <= self.offset(name, tensor) < max(self.weights[name].numel(), 1):
                return name
        return None


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _storages(result: object) -> set[int]:
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return {_storage(part) for part in parts if isinstance(part, torch.Tensor)}
