"""Rebuild the nested Python objects of a torch file from tagged JSON."""

from __future__ import annotations

import base64
import binascii
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tensorcomp.checkpoints.layouts.torch_tree import is_numbered
from tensorcomp.errors import FormatError

if TYPE_CHECKING:
    import torch


@dataclass
class TreeDecoder:
    """Rebuild an object from the JSON of `TreeEncoder`.

    Parameters
    ----------
    tensor_at : callable
        Gives the tensor of a leaf number.
    """

    tensor_at: Callable[[int], Any]
    _built: list[Any] = field(default_factory=list)

    def decode(self, node: Any) -> Any:
        """Return the object of a node.

        Raises
        ------
        FormatError
            If the node is not one that `TreeEncoder` writes.
        """
        try:
            return self._decode(node)
        except (
            AttributeError,
            IndexError,
            KeyError,
            OverflowError,
            RecursionError,
            RuntimeError,  # torch's own refusals
            TypeError,
            ValueError,
            binascii.Error,
            struct.error,
        ) as error:
            raise FormatError(f"the template of the torch file is damaged: {error!r}") from error

    def _decode(self, node: Any) -> Any:
        if isinstance(node, list):
            value: Any = [self._decode(item) for item in node]
        elif isinstance(node, dict):
            value = self._decode_tagged(node)
        else:
            value = node
        if is_numbered(node):
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
        if tag in ("dict", "odict", "counter"):
            pairs = self._decode_pairs(content)
            if tag == "dict":
                return pairs
            if tag == "counter":
                return Counter(pairs)
            ordered = OrderedDict(pairs)
            vars(ordered).update(self._decode_pairs(node.get("attributes", [])))
            return ordered
        return _decode_scalar(tag, content)

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


def _decode_scalar(tag: str, content: Any) -> Any:
    if tag == "int":
        return int(content, 16)
    if tag == "float":
        return struct.unpack(">d", bytes.fromhex(content))[0]
    if tag == "complex":
        real, imaginary = (_decode_float(part) for part in content)
        return complex(real, imaginary)
    if tag == "str":
        return bytes.fromhex(content).decode("utf-8", "surrogatepass")
    if tag == "bytes":
        return base64.b64decode(content, validate=True)
    if tag == "bytearray":
        return bytearray(base64.b64decode(content, validate=True))
    import torch

    if tag == "size":
        return torch.Size(content)
    if tag == "device":
        return torch.device(content)
    if tag in ("dtype", "layout"):
        value = getattr(torch, content)
        if isinstance(value, {"dtype": torch.dtype, "layout": torch.layout}[tag]):
            return value
    raise ValueError(f"unknown tag {tag!r}")


def _decode_float(node: Any) -> float:
    return _decode_scalar("float", node["float"]) if isinstance(node, dict) else float(node)
