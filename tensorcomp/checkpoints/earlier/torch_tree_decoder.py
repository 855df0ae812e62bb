"""Rebuild the nested Python objects of a torch file from tagged JSON."""

from __future__ import annotations

import base64
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tensorcomp.errors import PARSING_ERRORS, FormatError

if TYPE_CHECKING:
    import torch

_SHORT_TEXT = 64
_NUMBERED = frozenset(
    ("dict", "odict", "counter", "tuple", "size", "set", "str", "bytes", "bytearray", "tensor")
)


@dataclass
class TreeDecoder:
    """Rebuild an object from the JSON of `TreeEncoder`.

    Its `tensor_at` returns the tensor of a leaf number.
    """

    tensor_at: Callable[[int], Any]
    _built: list[Any] = field(default_factory=list)

    def decode(self, node: Any) -> Any:
        """Return the object of a node.

        Raises `FormatError` if the node is not one that `TreeEncoder` writes.
        """
        try:
            return self._decode(node)
        except (*PARSING_ERRORS, struct.error) as error:
            raise FormatError(f"the template of the torch file is damaged: {error!r}") from error

    def _decode(self, node: Any) -> Any:
        if isinstance(node, list):
            value: Any = [self._decode(item) for item in node]
        elif isinstance(node, dict):
            value = self._decode_tagged(node)
        else:
            value = node
        if _is_numbered(node):
            self._built.append(value)
        return value

    def _decode_tagged(self, node: dict[str, Any]) -> Any:
        if not node:
            raise ValueError("a node without a tag")
        tag, content = next(iter(node.items()))
        if tag == "ref":
            return self._built[content]
        if tag == "tensor":
            return self._decode_tensor(node)
        if tag in ("tuple", "set"):
            return {"tuple": tuple, "set": set}[tag]([self._decode(item) for item in content])
        if tag in ("dict", "counter"):
            return {"dict": dict, "counter": Counter}[tag](self._decode_pairs(content))
        if tag == "odict":
            ordered = OrderedDict(self._decode_pairs(content))
            vars(ordered).update(self._decode_pairs(node.get("attributes", [])))
            return ordered
        scalar = _SCALARS.get(tag)
        return scalar(content) if scalar else _torch_object(tag, content)

    def _decode_tensor(self, node: dict[str, Any]) -> torch.Tensor:
        import torch

        tensor: torch.Tensor = self.tensor_at(node["tensor"])
        requires_grad = bool(node.get("requires_grad", False))
        if node.get("parameter"):
            tensor = torch.nn.Parameter(tensor, requires_grad=requires_grad)
        elif requires_grad:
            tensor.requires_grad_()
        vars(tensor).update(self._decode_pairs(node.get("attributes", [])))
        return tensor

    def _decode_pairs(self, pairs: list[Any]) -> dict[Any, Any]:
        return {self._decode(key): self._decode(value) for key, value in pairs}


def _float(node: Any) -> float:
    """Return a float: a number, or the bits of one that is not finite."""
    if isinstance(node, dict):
        node = struct.unpack(">d", bytes.fromhex(node["float"]))[0]
    if type(node) not in (int, float):
        raise TypeError(f"expected a number, got {node!r}")
    return float(node)


def _complex(parts: Any) -> complex:
    real, imaginary = parts
    return complex(_float(real), _float(imaginary))


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": lambda text: _float({"float": text}),
    "complex": _complex,
    "str": lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "bytearray": lambda text: bytearray(base64.b64decode(text, validate=True)),
}


def _torch_object(tag: str, content: Any) -> Any:
    import torch

    if tag == "size":
        return torch.Size(content)
    if tag == "device":
        return torch.device(content)
    if tag not in ("dtype", "layout"):
        raise ValueError(f"unknown tag {tag!r}")
    value = vars(torch).get(content)  # getattr would import a submodule of this name
    if not isinstance(value, getattr(torch, tag)):
        raise TypeError(f"expected a {tag} of torch, got {content!r}")
    return value


def _is_numbered(node: Any) -> bool:
    """Return whether a ``ref`` may mean the object of this node."""
    if isinstance(node, dict):
        return not _NUMBERED.isdisjoint(node)
    return isinstance(node, list) or (isinstance(node, str) and len(node) > _SHORT_TEXT)
