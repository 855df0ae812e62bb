"""The nested objects of a torch file with the names of its tensors in their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensorcomp.checkpoints.base import Recipe
from tensorcomp.checkpoints.layouts.torch_tree_decoder import TreeDecoder
from tensorcomp.checkpoints.packing import unpack_structure


@dataclass(frozen=True)
class Place:
    """Where a tensor stands in a torch file.

    Parameters
    ----------
    name : str or None
        What it is called among the file's tensors; None if it shares memory with others.
    """

    name: str | None


class _PlaceDecoder(TreeDecoder):
    """Builds nested objects with a `Place` for each tensor."""

    def _decode_tensor(self, node: dict[str, Any]) -> Any:
        self._decode_pairs(node.get("attributes", []))  # what they hold is numbered too
        return self.tensor_at(node["tensor"])


def object_of(recipe: Recipe) -> Any:
    """Return the object of a torch file, with a `Place` for each tensor."""
    structure = unpack_structure(recipe)
    leaves = structure["leaves"]
    return _PlaceDecoder(lambda leaf: Place(leaves[leaf].get("name"))).decode(structure["tree"])


def items_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a dict, list or tuple holds, by its key or number as a text; nothing of others."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key), item
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield str(number), item
