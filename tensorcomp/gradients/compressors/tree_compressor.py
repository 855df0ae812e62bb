"""Compress gradients by codec trees."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import GradientError, PlanError, UnknownCodecError
from tensorcomp.gradients.base import Compressor, Payload, Reduction, State
from tensorcomp.gradients.payload.encode import tree_blob
from tensorcomp.gradients.payload.receive import TreeCoded
from tensorcomp.gradients.payload.sparse_blobs import is_sparse


@dataclass(frozen=True)
class TreeCompressor(TreeCoded, Compressor):
    """Compress by a codec tree, as tensors of checkpoints are; stateless.

    Parameters
    ----------
    tree : Node
        For example that of ``topk(0.01, values=affine(8))``.

    Notes
    -----
    Sparse trees are gathered: each worker sends k elements to each other one. Trees that send all
    elements are reduced by owners, so that W workers cost as little as two.
    """

    tree: Node

    @classmethod
    def of(cls, text: str) -> TreeCompressor:
        """Return the compressor of a tree's text.

        Raises
        ------
        PlanError
            If the text describes no tree.
        """
        return cls(parse_tree(text))

    @property
    def reduction(self) -> Reduction:  # type: ignore[override]
        """``"gather"`` for sparse trees, ``"reduce_scatter"`` for others."""
        return "gather" if is_sparse(self.tree) else "reduce_scatter"

    @property
    def takes_tensors(self) -> bool:  # type: ignore[override]
        """Whether the root is computed on devices; subtrees run on the host."""
        from tensorcomp.gradients.cuda.blobs import computes_root

        return computes_root(self.tree)

    @property
    def needs_feedback(self) -> bool:
        """Whether the tree's error needs error feedback."""
        root = self.tree.codec
        return not self.tree.lossless and (root.lossless or root.needs_feedback)

    @property
    def keep(self) -> int | float | None:
        """Part or count of elements that the root keeps; None if no argument."""
        return getattr(self.tree.codec, "keep", None)

    def with_keep(self, keep: float) -> Compressor:
        """Return this compressor with another part kept."""
        return super().with_keep(keep) if self.keep is None else _with_keep(self, keep)

    def step(self, gradient: Any, state: State) -> tuple[Payload, State]:
        """Compress a gradient."""
        return tree_blob(self.tree, gradient, state.spec), state


@functools.lru_cache(maxsize=1024)
def _with_keep(compressor: TreeCompressor, keep: float) -> TreeCompressor:
    codec: Any = compressor.tree.codec
    return TreeCompressor(Node(replace(codec, keep=keep), compressor.tree.children))


def wire_tree(text: str) -> Node:
    """Parse a codec tree that is fit for gradients.

    Raises
    ------
    GradientError
        If the text describes no tree, or one of its codecs is not fit for gradients.
    """
    try:
        tree = parse_tree(text)
    except UnknownCodecError as error:
        from tensorcomp.gradients.registry import compressor_ids

        others = ", ".join(compressor_ids())
        raise GradientError(f"{error}; compressors that are not trees: {others}") from error
    except PlanError as error:
        raise GradientError(str(error)) from error
    for codec in tree.walk():
        if codec.off_wire and not (codec.codes_positions and codec is not tree.codec):
            raise GradientError(f"{codec.id} cannot go on the wire: {codec.off_wire}")
    if getattr(tree.codec, "keep", None) == 0:
        raise GradientError(f"{tree.codec.id} that keeps no element would never send anything")
    return tree
