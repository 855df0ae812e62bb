"""Listen to the operations that read weights, in any layer or function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_COPIES = (_aten._to_copy.default, _aten.clone.default)
# What operations do with a weight, and where they take it; inputs of products stand before it.
_USES: dict[Any, tuple[str, int]] = {
    _aten.mm.default: ("product", 1),
    _aten.bmm.default: ("product", 1),
    _aten.addmm.default: ("product", 2),
    _aten.baddbmm.default: ("product", 2),
    _aten.convolution.default: ("convolution", 1),
    _aten.embedding.default: ("lookup", 0),
}


class Read(NamedTuple):
    """An operation that reads weights.

    By place of argument it has their names, and where what is read begins in their memory, in
    elements.
    """

    function: Any
    args: Sequence[Any]
    options: Mapping[str, Any]
    result: Any
    names: Mapping[int, str]
    offsets: Mapping[int, int]

    def use(self) -> tuple[str, int]:
        """Return product, convolution or lookup, and where the weight stands.

        Of others, such as transposed convolutions, the kind is empty.
        """
        kind, at = _USES.get(self.function, ("", -1))
        known = at in self.names and not (kind == "convolution" and self.args[6])
        return (kind, at) if known else ("", -1)


class WeightReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls back after each operation that reads a weight, a view or a copy.

    Autograd knows the result then, and no other operation has changed it or the inputs. Operations
    that only make such a view or copy are left out.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], heard: Callable[[Read], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._heard = heard
        self._last: Read | None = None
        self._weights = weights
        # By storage: what is there, of which weight, and where its first element would be.
        self._copies: dict[int, list[tuple[torch.Tensor, str, int]]] = {}
        self._own: dict[int, list[tuple[torch.Tensor, str, int]]] = {}
        for name, weight in weights.items():
            place = weight, name, int(weight.storage_offset())
            self._own.setdefault(_storage(weight), []).append(place)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hear of operations in this block only, not where layers run again."""
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # a layer of attention in one operation
        torch.clear_autocast_cache()  # of copies that were made before this block
        try:
            with self:
                yield
            self._tell()
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            self._last = None
            self._copies.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, after telling of the one before."""
        self._tell()
        result = func(*args, **(kwargs or {}))
        tensors = {at: arg for at, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
        found = {at: place for at, arg in tensors.items() if (place := self._place_of(arg))}
        names = {at: name for at, (name, _) in found.items()}
        offsets = {at: offset for at, (_, offset) in found.items()}
        if func in _COPIES and 0 in names and result.stride() == args[0].stride():
            # Kept, lest its place be reused.
            self._copies[_storage(result)] = [(result, names[0], -offsets[0])]
        elif names and _storages(result).isdisjoint(_storage(tensors[at]) for at in names):
            self._last = Read(func, args, kwargs or {}, result, names, offsets)
        return result

    def _tell(self) -> None:
        if (read := self._last) is not None:
            self._last = None
            with torch.no_grad():
                self._heard(read)

    def _place_of(self, tensor: torch.Tensor) -> tuple[str, int] | None:
        """Return which of the weights a tensor is a part or copy of, and where it begins there."""
        key = _storage(tensor)
        for _, name, first in self._copies.get(key, self._own.get(key, [])):
            begin = int(tensor.storage_offset()) - first
            if 0 <= begin < max(self._weights[name].numel(), 1):
                return name, begin
        return None


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _storages(result: object) -> set[int]:
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return {_storage(part) for part in parts if isinstance(part, torch.Tensor)}
