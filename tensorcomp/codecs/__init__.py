"""How a tensor becomes bytes: codecs, trees of them, their text and JSON forms.

Pure: no files, no models, no threads. Importing this package does not import the kernels.
"""

from __future__ import annotations

from tensorcomp.codecs.ans import Ans
from tensorcomp.codecs.base import ArraySpec, Codec, Filter, Serializer, Transform
from tensorcomp.codecs.bitpack import Bitpack
from tensorcomp.codecs.constant import Constant
from tensorcomp.codecs.fields import Fields
from tensorcomp.codecs.floats import Floats
from tensorcomp.codecs.gaps import Gaps
from tensorcomp.codecs.grid import Grid
from tensorcomp.codecs.huffman import Huffman
from tensorcomp.codecs.palette import Palette
from tensorcomp.codecs.raw import Raw
from tensorcomp.codecs.registry import codec_class, codec_ids
from tensorcomp.codecs.runlength import Runlength
from tensorcomp.codecs.sparse import Sparse
from tensorcomp.codecs.text import format_tree, parse_tree, tree_from_json, tree_to_json
from tensorcomp.codecs.tree import Node, decode, encode, fit
from tensorcomp.codecs.zstd import Zstd

OWN_CODECS: tuple[type[Codec], ...] = (
    Ans,
    Bitpack,
    Constant,
    Fields,
    Floats,
    Gaps,
    Grid,
    Huffman,
    Palette,
    Raw,
    Runlength,
    Sparse,
    Zstd,
)

__all__ = [
    "OWN_CODECS",
    "ArraySpec",
    "Codec",
    "Filter",
    "Node",
    "Serializer",
    "Transform",
    "codec_class",
    "codec_ids",
    "decode",
    "encode",
    "fit",
    "format_tree",
    "parse_tree",
    "tree_from_json",
    "tree_to_json",
]
