"""Any tree of codecs that can go on the wire, as a compressor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tensorcomp.codecs.text import format_tree, parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, Payload, Reduction, State
from tensorcomp.gradients.payload.blobs import receive_blob, tree_blob
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.payload.sparse_blobs import is_sparse


@dataclass(frozen=True)
class TreeCompressor(Compressor):
    """Compress by a tree of codecs, as tensors of checkpoints are; nothing is remembered.

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
        """Whether a device computes what the root gives; the subtrees stay on the host."""
        from tensorcomp.gradients.cuda.blobs import computes_root

        return computes_root(self.tree)

    @property
    def keep(self) -> int | float | None:
        """Which part of the elements the root keeps; None if it keeps all, or says it otherwise."""
        return getattr(self.tree.codec, "keep", None)

    def with_keep(self, keep: float) -> TreeCompressor:
        """Return the compressor that keeps another part.

        Raises
        ------
        GradientError
            If the tree's root does not say which part it keeps.
        """
        if self.keep is None:
            raise GradientError(
                f"{self.text()} has no ratio that could change; give a tree such as topk(0.01)"
            )
        codec: Any = self.tree.codec
        return TreeCompressor(Node(replace(codec, keep=keep), self.tree.children))

    def text(self) -> str:
        """Return the tree's text."""
        return format_tree(self.tree)

    def step(self, gradient: Any, state: State) -> tuple[Payload, State]:
        """Compress a gradient."""
        return tree_blob(self.tree, gradient, state.spec), state

    def receive(self, payload: Payload) -> DecodedGradient:
        """Return what a payload decodes to."""
        return receive_blob(self.tree, payload)
