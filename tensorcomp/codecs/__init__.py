"""How a tensor becomes bytes: codecs, trees of them, their text and JSON forms.

Pure: no files, no models, no threads. Importing this package does not import the kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp.lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.codecs.affine import Affine
    from tensorcomp.codecs.ans import Ans
    from tensorcomp.codecs.base import ArraySpec, Codec, Filter, Serializer, Transform
    from tensorcomp.codecs.bitpack import Bitpack
    from tensorcomp.codecs.block import Block
    from tensorcomp.codecs.cast import Cast
    from tensorcomp.codecs.channel import Channel
    from tensorcomp.codecs.constant import Constant
    from tensorcomp.codecs.fields import Fields
    from tensorcomp.codecs.filter import FilterRows
    from tensorcomp.codecs.floats import Floats
    from tensorcomp.codecs.gaps import Gaps
    from tensorcomp.codecs.grid import Grid
    from tensorcomp.codecs.group_floats import GroupFloats
    from tensorcomp.codecs.huffman import Huffman
    from tensorcomp.codecs.kmeans import Kmeans
    from tensorcomp.codecs.live import Live
    from tensorcomp.codecs.magnitude import Magnitude
    from tensorcomp.codecs.nf4 import Nf4
    from tensorcomp.codecs.nm import NM
    from tensorcomp.codecs.packed import Packed
    from tensorcomp.codecs.palette import Palette
    from tensorcomp.codecs.pq import Pq
    from tensorcomp.codecs.randomk import RandomK
    from tensorcomp.codecs.raw import Raw
    from tensorcomp.codecs.registry import codec_class, codec_ids
    from tensorcomp.codecs.rotate import Rotate
    from tensorcomp.codecs.runlength import Runlength
    from tensorcomp.codecs.sign import Sign
    from tensorcomp.codecs.sparse import Sparse
    from tensorcomp.codecs.svd import Svd
    from tensorcomp.codecs.ternary import Ternary
    from tensorcomp.codecs.text import format_tree, parse_tree, tree_from_json, tree_to_json
    from tensorcomp.codecs.threshold import Threshold
    from tensorcomp.codecs.topk import TopK
    from tensorcomp.codecs.tree import Node, decode, encode, fit
    from tensorcomp.codecs.trellis import Trellis
    from tensorcomp.codecs.uniform import Uniform
    from tensorcomp.codecs.zeros import Zeros
    from tensorcomp.codecs.zstd import Zstd

_HOMES = {
    "Affine": "affine",
    "Ans": "ans",
    "ArraySpec": "base",
    "Bitpack": "bitpack",
    "Block": "block",
    "Cast": "cast",
    "Channel": "channel",
    "Codec": "base",
    "Constant": "constant",
    "Fields": "fields",
    "Filter": "base",
    "FilterRows": "filter",
    "Floats": "floats",
    "Gaps": "gaps",
    "Grid": "grid",
    "GroupFloats": "group_floats",
    "Huffman": "huffman",
    "Kmeans": "kmeans",
    "Live": "live",
    "Magnitude": "magnitude",
    "NM": "nm",
    "Nf4": "nf4",
    "Node": "tree",
    "Packed": "packed",
    "Palette": "palette",
    "Pq": "pq",
    "RandomK": "randomk",
    "Raw": "raw",
    "Rotate": "rotate",
    "Runlength": "runlength",
    "Serializer": "base",
    "Sign": "sign",
    "Sparse": "sparse",
    "Svd": "svd",
    "Ternary": "ternary",
    "Threshold": "threshold",
    "TopK": "topk",
    "Transform": "base",
    "Trellis": "trellis",
    "Uniform": "uniform",
    "Zeros": "zeros",
    "Zstd": "zstd",
    "codec_class": "registry",
    "codec_ids": "registry",
    "decode": "tree",
    "encode": "tree",
    "fit": "tree",
    "format_tree": "text",
    "parse_tree": "text",
    "tree_from_json": "text",
    "tree_to_json": "text",
}

__all__ = [
    "NM",
    "Affine",
    "Ans",
    "ArraySpec",
    "Bitpack",
    "Block",
    "Cast",
    "Channel",
    "Codec",
    "Constant",
    "Fields",
    "Filter",
    "FilterRows",
    "Floats",
    "Gaps",
    "Grid",
    "GroupFloats",
    "Huffman",
    "Kmeans",
    "Live",
    "Magnitude",
    "Nf4",
    "Node",
    "Packed",
    "Palette",
    "Pq",
    "RandomK",
    "Raw",
    "Rotate",
    "Runlength",
    "Serializer",
    "Sign",
    "Sparse",
    "Svd",
    "Ternary",
    "Threshold",
    "TopK",
    "Transform",
    "Trellis",
    "Uniform",
    "Zeros",
    "Zstd",
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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
