"""How a tensor becomes bytes: codecs, trees of them, their text and JSON forms.

Pure: no files, no models, no threads. Importing this package does not import the kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp._lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.codecs.base import ArraySpec, Codec, Filter, Serializer, Transform
    from tensorcomp.codecs.entropy.ans import Ans
    from tensorcomp.codecs.entropy.bitpack import Bitpack
    from tensorcomp.codecs.entropy.constant import Constant
    from tensorcomp.codecs.entropy.gaps import Gaps
    from tensorcomp.codecs.entropy.huffman import Huffman
    from tensorcomp.codecs.entropy.palette import Palette
    from tensorcomp.codecs.entropy.raw import Raw
    from tensorcomp.codecs.entropy.runlength import Runlength
    from tensorcomp.codecs.entropy.zstd import Zstd
    from tensorcomp.codecs.floats.cast import Cast
    from tensorcomp.codecs.floats.fields import Fields
    from tensorcomp.codecs.floats.floats import Floats
    from tensorcomp.codecs.floats.group_floats import GroupFloats
    from tensorcomp.codecs.lowrank.rotate import Rotate
    from tensorcomp.codecs.lowrank.svd import Svd
    from tensorcomp.codecs.quantize.affine import Affine
    from tensorcomp.codecs.quantize.grid import Grid
    from tensorcomp.codecs.quantize.kmeans import Kmeans
    from tensorcomp.codecs.quantize.nf4 import Nf4
    from tensorcomp.codecs.quantize.pq import Pq
    from tensorcomp.codecs.quantize.sign import Sign
    from tensorcomp.codecs.quantize.ternary import Ternary
    from tensorcomp.codecs.quantize.trellis import Trellis
    from tensorcomp.codecs.quantize.uniform import Uniform
    from tensorcomp.codecs.registry import codec_class, codec_ids
    from tensorcomp.codecs.sparse.block import Block
    from tensorcomp.codecs.sparse.channel import Channel
    from tensorcomp.codecs.sparse.filter import FilterRows
    from tensorcomp.codecs.sparse.live import Live
    from tensorcomp.codecs.sparse.magnitude import Magnitude
    from tensorcomp.codecs.sparse.nm import NM
    from tensorcomp.codecs.sparse.packed import Packed
    from tensorcomp.codecs.sparse.randomk import RandomK
    from tensorcomp.codecs.sparse.sparse import Sparse
    from tensorcomp.codecs.sparse.threshold import Threshold
    from tensorcomp.codecs.sparse.topk import TopK
    from tensorcomp.codecs.sparse.zeros import Zeros
    from tensorcomp.codecs.text import format_tree, parse_tree, tree_from_json, tree_to_json
    from tensorcomp.codecs.tree import Node, decode, encode, fit

_HOMES = {
    "Affine": "tensorcomp.codecs.quantize.affine",
    "Ans": "tensorcomp.codecs.entropy.ans",
    "ArraySpec": "tensorcomp.codecs.base",
    "Bitpack": "tensorcomp.codecs.entropy.bitpack",
    "Block": "tensorcomp.codecs.sparse.block",
    "Cast": "tensorcomp.codecs.floats.cast",
    "Channel": "tensorcomp.codecs.sparse.channel",
    "Codec": "tensorcomp.codecs.base",
    "Constant": "tensorcomp.codecs.entropy.constant",
    "Fields": "tensorcomp.codecs.floats.fields",
    "Filter": "tensorcomp.codecs.base",
    "FilterRows": "tensorcomp.codecs.sparse.filter",
    "Floats": "tensorcomp.codecs.floats.floats",
    "Gaps": "tensorcomp.codecs.entropy.gaps",
    "Grid": "tensorcomp.codecs.quantize.grid",
    "GroupFloats": "tensorcomp.codecs.floats.group_floats",
    "Huffman": "tensorcomp.codecs.entropy.huffman",
    "Kmeans": "tensorcomp.codecs.quantize.kmeans",
    "Live": "tensorcomp.codecs.sparse.live",
    "Magnitude": "tensorcomp.codecs.sparse.magnitude",
    "NM": "tensorcomp.codecs.sparse.nm",
    "Nf4": "tensorcomp.codecs.quantize.nf4",
    "Node": "tensorcomp.codecs.tree",
    "Packed": "tensorcomp.codecs.sparse.packed",
    "Palette": "tensorcomp.codecs.entropy.palette",
    "Pq": "tensorcomp.codecs.quantize.pq",
    "RandomK": "tensorcomp.codecs.sparse.randomk",
    "Raw": "tensorcomp.codecs.entropy.raw",
    "Rotate": "tensorcomp.codecs.lowrank.rotate",
    "Runlength": "tensorcomp.codecs.entropy.runlength",
    "Serializer": "tensorcomp.codecs.base",
    "Sign": "tensorcomp.codecs.quantize.sign",
    "Sparse": "tensorcomp.codecs.sparse.sparse",
    "Svd": "tensorcomp.codecs.lowrank.svd",
    "Ternary": "tensorcomp.codecs.quantize.ternary",
    "Threshold": "tensorcomp.codecs.sparse.threshold",
    "TopK": "tensorcomp.codecs.sparse.topk",
    "Transform": "tensorcomp.codecs.base",
    "Trellis": "tensorcomp.codecs.quantize.trellis",
    "Uniform": "tensorcomp.codecs.quantize.uniform",
    "Zeros": "tensorcomp.codecs.sparse.zeros",
    "Zstd": "tensorcomp.codecs.entropy.zstd",
    "codec_class": "tensorcomp.codecs.registry",
    "codec_ids": "tensorcomp.codecs.registry",
    "decode": "tensorcomp.codecs.tree",
    "encode": "tensorcomp.codecs.tree",
    "fit": "tensorcomp.codecs.tree",
    "format_tree": "tensorcomp.codecs.text",
    "parse_tree": "tensorcomp.codecs.text",
    "tree_from_json": "tensorcomp.codecs.text",
    "tree_to_json": "tensorcomp.codecs.text",
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
