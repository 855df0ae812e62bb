"""Write the nested Python objects of a torch file as tagged JSON.

``None``, booleans, finite floats, short integers, texts and lists are JSON values; everything else
is an object with a tag first: ``{"tuple": […]}``, ``{"dict": [[key, value], …]}``,
``{"tensor": leaf}``. An object met again is ``{"ref": n}``, the n-th numbered one to be completed,
so that what was one object stays one, and a small file that repeats itself a million times does not
become a large one.
"""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import shown
from tensorcomp.errors import CheckpointError

if TYPE_CHECKING:
    import torch

MAX_DEPTH = 100

_JSON_INT_MAX = 2**53  # beyond it some JSON readers round
_SHORT_TEXT = 64
_NUMBERED = frozenset(
    ("dict", "odict", "counter", "tuple", "size", "set", "str", "bytes", "bytearray", "tensor")
)


@dataclass(frozen=True)
class Leaf:
    """A tensor met in the tree, and the path to it as a readable text."""

    name: str
    tensor: torch.Tensor


@dataclass
class TreeEncoder:
    """Write an object as JSON and collect the tensors that it holds.

    Parameters
    ----------
    max_bytes : int
        The longest byte string that the file can hold; a pickle can ask for one of any length.
    """

    max_bytes: int
    leaves: list[Leaf] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)
    _count: int = 0

    def encode(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """Return an object as JSON.

        Raises `CheckpointError` if it holds itself, nests too deeply, or has a class that no
        checkpoint needs.
        """
        key = id(value)
        if key in self._numbers:
            return {"ref": self._numbers[key]}
        if key in self._open:
            raise CheckpointError(f"{_at(path)} holds itself; save a state dict without cycles")
        if len(path) > MAX_DEPTH:
            raise _too_deep()
        self._open.add(key)
        node = self._encode_new(value, path)
        self._open.discard(key)
        if is_numbered(node):
            self._numbers[key] = self._count
            self._count += 1
        return node

    def _encode_new(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if abs(value) < _JSON_INT_MAX else {"int": hex(value)}
        if kind is float:
            return _float_node(value)
        if kind is complex:
            return {"complex": [_float_node(value.real), _float_node(value.imag)]}
        if kind is str:
            return _text_node(value)
        if kind is bytes or kind is bytearray:
            if len(value) > self.max_bytes:
                raise CheckpointError(
                    f"{_at(path)} claims {len(value):,} bytes, more than its file can hold"
                )
            return {kind.__name__: base64.b64encode(value).decode()}
        if kind is list:
            return self._encode_items(value, path)
        if kind is tuple:
            return {"tuple": self._encode_items(value, path)}
        if kind is set:
            return {"set": self._encode_items(_in_order(value), path)}
        if kind is dict or kind is Counter:
            return {kind.__name__.lower(): self._encode_pairs(value, path)}
        if kind is OrderedDict:
            node = {"odict": self._encode_pairs(value, path)}
            return self._with_attributes(node, vars(value), path)
        return self._encode_torch(value, path)

    def _encode_torch(self, value: Any, path: tuple[str, ...]) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return self._encode_tensor(value, path)
        if type(value) is torch.Size:
            return {"size": list(value)}
        if isinstance(value, (torch.device, torch.dtype, torch.layout)):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise CheckpointError(
            f"{_at(path)} is a {kind}, which cannot be stored; "
            "turn it into tensors, numbers, texts, lists and dicts first"
        )

    def _encode_tensor(self, tensor: torch.Tensor, path: tuple[str, ...]) -> Any:
        import torch

        reason = _refusal(tensor)
        if reason is not None:
            raise CheckpointError(f"{_at(path)} is {reason}")
        node: dict[str, Any] = {"tensor": len(self.leaves)}
        self.leaves.append(Leaf(".".join(path) if path else "tensor", tensor))
        if type(tensor) is torch.nn.Parameter:
            node["parameter"] = True
        if tensor.requires_grad:
            node["requires_grad"] = True
        return self._with_attributes(node, vars(tensor), path)

    def _encode_items(self, items: Sequence[Any], path: tuple[str, ...]) -> list[Any]:
        return [self.encode(item, (*path, str(index))) for index, item in enumerate(items)]

    def _encode_pairs(self, pairs: dict[Any, Any], path: tuple[str, ...]) -> list[Any]:
        return [
            [
                self.encode(key, (*path, f"key {index}")),
                self.encode(value, (*path, _step(key, index))),
            ]
            for index, (key, value) in enumerate(pairs.items())
        ]

    def _with_attributes(
        self, node: dict[str, Any], attributes: dict[str, Any], path: tuple[str, ...]
    ) -> dict[str, Any]:
        if attributes:
            node["attributes"] = self._encode_pairs(attributes, path)
        return node


def _in_order(items: set[Any]) -> list[Any]:
    # The iteration order of a set of texts changes from run to run.
    try:
        return sorted(items, key=repr)
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> CheckpointError:
    return CheckpointError(f"nests more than {MAX_DEPTH} levels deep; save a flat state dict")


def _at(path: tuple[str, ...]) -> str:
    return shown(".".join(path)) if path else "its root"


def _float_node(value: float) -> Any:
    """Return a finite float itself, since its repr is exact, and another's bits."""
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}


def _text_node(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"str": text.encode("utf-8", "surrogatepass").hex()}
    return text


def is_numbered(node: Any) -> bool:
    """Return whether a ``ref`` may mean the object of this node."""
    if isinstance(node, dict):
        return not _NUMBERED.isdisjoint(node)
    return isinstance(node, list) or (isinstance(node, str) and len(node) > _SHORT_TEXT)


def _step(key: Any, index: int) -> str:
    """Return the part of a tensor's name for a dictionary key."""
    simple = (str, int, float, type(None))
    if isinstance(key, simple):
        return str(key)
    if isinstance(key, tuple) and all(isinstance(part, simple) for part in key):
        return repr(key)
    return str(index)


def _refusal(tensor: torch.Tensor) -> str | None:
    """Explain why a tensor's values are not plain bytes; None if they are."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        return f"a tensor of the subclass {kind}; save the plain tensors that it is made of instead"
    if tensor.is_nested:
        return "a nested tensor; save its unbind() as a list instead"
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}; save tensor.to_dense() instead"
    if tensor.is_quantized:
        return "a quantized tensor; save its int_repr(), scale and zero point instead"
    if tensor.device.type == "meta":
        return "a meta tensor, which has no values; save it from a model whose weights are loaded"
    return None
