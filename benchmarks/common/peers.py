"""The codecs that the benchmarks run, each as one pair of functions.

A peer that takes a buffer gets the bytes of the whole checkpoint and its element type; `tensorcomp`
gets the dict of tensors. A peer that cannot use threads itself is given one equal slice a thread,
and its slices count as one encoding. Each peer runs at its defaults, except where a comment says
why.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import numpy as np

from benchmarks.common.checkpoints import Array, Element, Input

Coder = Callable[[Any, Element, int], Any]

# ml_dtypes.bfloat16 means nothing to the peers; its bits in 16-bit integers do.
_NUMPY: dict[Element, type[np.generic]] = {
    "bfloat16": np.uint16,
    "float32": np.float32,
    "float16": np.float16,
    "uint8": np.uint8,
}


@dataclass(frozen=True)
class Peer:
    """A codec, how to install it, and how to call it."""

    name: str
    requirement: str
    encode: Coder
    decode: Coder
    note: str = ""
    slow: bool = False
    takes: Literal["buffer", "tensors"] = "buffer"

    @property
    def package(self) -> str:
        """Return the name of the peer's package, which is also its module's."""
        return self.requirement.partition("==")[0]

    def unavailable(self) -> str | None:
        """Return why the peer cannot run and what would help, or None."""
        try:
            import_module(self.package)
        except ImportError as error:
            return f"{error} (pip install '{self.requirement}')"
        return None

    def fresh(self, data: Input, buffer: bytes) -> Any:
        """Return a private copy of the input.

        ZipNN reorders bits of its input in place, even of immutable bytes, so no copy serves twice.
        """
        if self.takes == "tensors":
            return {name: tensor.copy() for name, tensor in data.tensors.items()}
        return bytes(memoryview(buffer))

    def exact(self, decoded: Any, data: Input, buffer: bytes) -> bool:
        """Tell whether every bit came back (and for tensors names, types and shapes)."""
        if self.takes == "buffer":
            pieces = decoded if isinstance(decoded, list) else [decoded]
            return b"".join(memoryview(piece).cast("B") for piece in pieces) == buffer
        return set(decoded) == set(data.tensors) and all(
            same_array(decoded[name], tensor) for name, tensor in data.tensors.items()
        )


def same_array(left: Array, right: Array) -> bool:
    """Compare type, shape and bits; NaN equals the same NaN."""
    same_kind = left.dtype == right.dtype and left.shape == right.shape
    return same_kind and left.tobytes() == right.tobytes()


def encoded_size(blob: Any) -> int:
    """Return the bytes of an encoding, of all its slices where it has several."""
    return sum(map(len, blob)) if isinstance(blob, list) else len(blob)


def as_array(source: bytes, element: Element) -> Array:
    """View a buffer as its elements."""
    return np.frombuffer(source, _NUMPY[element])


def map_threads(call: Callable[[Any], Any], parts: Iterable[Any], threads: int) -> list[Any]:
    """Call a function on every part, `threads` at a time."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, parts))


def tensorcomp_encode(effort: str, source: Any, element: Element, threads: int) -> Any:
    """Save the tensors; the element type is in them."""
    return import_module("tensorcomp").save(source, threads=threads, effort=effort)


def tensorcomp_decode(blob: bytes, element: Element, threads: int) -> Any:
    """Load every tensor."""
    return import_module("tensorcomp").load(blob, threads=threads)


def zipnn_codec(element: Element, threads: int) -> Any:
    """Make a ZipNN object; it has no byte type, so bytes go as its default, bfloat16."""
    dtype = "bfloat16" if element == "uint8" else element
    return import_module("zipnn").ZipNN(input_format="byte", bytearray_dtype=dtype, threads=threads)


def zipnn_encode(source: bytes, element: Element, threads: int) -> Any:
    """Compress with the default method, Huffman codes of byte planes."""
    return zipnn_codec(element, threads).compress(source)


def zipnn_decode(blob: bytes, element: Element, threads: int) -> Any:
    """Decompress to a bytearray."""
    return zipnn_codec(element, threads).decompress(blob)


def pcodec_encode(source: bytes, element: Element, threads: int) -> Any:
    """Compress one slice a thread at the default level."""
    pcodec = import_module("pcodec")
    compress = partial(
        pcodec.standalone.simple_compress, config=pcodec.ChunkConfig(enable_8_bit=True)
    )
    return map_threads(compress, np.array_split(as_array(source, element), threads), threads)


def pcodec_decode(blob: Sequence[bytes], element: Element, threads: int) -> Any:
    """Decompress each slice to its own array."""
    return map_threads(import_module("pcodec").standalone.simple_decompress, blob, threads)


def blosc2_encode(
    filter_name: str, level: int, source: bytes, element: Element, threads: int
) -> Any:
    """Compress to a frame of 16 MiB chunks, since a single Blosc2 buffer ends at 2 GiB."""
    blosc2 = import_module("blosc2")
    settings = blosc2.CParams(
        codec=blosc2.Codec.ZSTD,
        clevel=level,
        typesize=np.dtype(_NUMPY[element]).itemsize,
        filters=[blosc2.Filter[filter_name]],
        nthreads=threads,
    )
    chunks = blosc2.SChunk(chunksize=1 << 24, data=source, cparams=settings)
    return chunks.to_cframe()


def blosc2_decode(blob: bytes, element: Element, threads: int) -> Any:
    """Decompress all chunks into one new array."""
    blosc2 = import_module("blosc2")
    chunks = blosc2.schunk_from_cframe(blob)
    chunks.dparams = blosc2.DParams(nthreads=threads)
    decoded = np.empty(chunks.nbytes, np.uint8)
    chunks.get_slice(out=decoded)
    return decoded


def z4ai_encode(source: bytes, element: Element, threads: int) -> Any:
    """Compress with the default effort."""
    names = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "uint8": "uint8"}
    return import_module("z4ai").compress(source, dtype=names[element], threads=threads)


def z4ai_decode(blob: bytes, element: Element, threads: int) -> Any:
    """Decompress with as many threads as z4ai likes; it has no setting."""
    return import_module("z4ai").decompress(blob)


def openzl_graph(compressor: Any, element: Element) -> Any:
    """Build the OpenZL graph for an element type: split the float, code each byte lane.

    OpenZL's general graph is slower on all and larger on bf16. On fp16 whole byte lanes are both
    smaller and faster than splitting off the five exponent bits.
    """
    openzl = import_module("openzl.ext")
    nodes, graphs = openzl.nodes, openzl.graphs
    entropy = graphs.Entropy()
    lanes = nodes.TransposeSplit()
    if element == "float32":
        return nodes.Float32Deconstruct()(compressor, lanes(compressor, entropy), entropy)
    if element == "bfloat16":
        return nodes.BFloat16Deconstruct()(compressor, lanes(compressor, entropy), entropy)
    if element == "float16":
        return nodes.ConvertNumToStructLE()(compressor, lanes(compressor, entropy))
    return graphs.Compress()(compressor)


def openzl_encode(source: bytes, element: Element, threads: int) -> Any:
    """Compress one slice a thread, each with its own context."""
    openzl = import_module("openzl.ext")

    def compress(part: Array) -> bytes:
        compressor = openzl.Compressor()
        compressor.set_parameter(openzl.CParam.FormatVersion, openzl.MAX_FORMAT_VERSION)
        compressor.select_starting_graph(openzl_graph(compressor, element))
        context = openzl.CCtx()
        context.ref_compressor(compressor)
        context.set_parameter(openzl.CParam.FormatVersion, openzl.MAX_FORMAT_VERSION)
        encoded: bytes = context.compress([openzl.Input(openzl.Type.Numeric, part)])
        return encoded

    width = np.dtype(_NUMPY[element]).itemsize
    integers = np.frombuffer(source, np.dtype(f"u{width}"))
    return map_threads(compress, np.array_split(integers, threads), threads)


def openzl_decode(blob: Sequence[bytes], element: Element, threads: int) -> Any:
    """Decompress each slice to its own array."""
    openzl = import_module("openzl.ext")

    def decompress(part: bytes) -> Any:
        return openzl.DCtx().decompress(part)[0].content.as_nparray()

    return map_threads(decompress, blob, threads)


def zstd_encode(source: bytes, element: Element, threads: int) -> Any:
    """Compress at level 3, zstd's default."""
    zstd = import_module("zstandard")
    return zstd.ZstdCompressor(level=3, threads=threads).compress(source)


def zstd_decode(blob: bytes, element: Element, threads: int) -> Any:
    """Decompress in one thread; the format allows no more."""
    return import_module("zstandard").ZstdDecompressor().decompress(blob)


REFERENCE = "ZipNN"
EFFORTS = ("fast", "balanced", "max")


def ours(effort: str) -> str:
    """Return the name of the tensorcomp peer at an effort."""
    return f"tensorcomp {effort}"


def _ours(effort: str) -> Peer:
    encode = partial(tensorcomp_encode, effort)
    return Peer(ours(effort), "tensorcomp", encode, tensorcomp_decode, takes="tensors")


def _blosc2(filter_name: str, level: int) -> Peer:
    name = f"Blosc2 {filter_name.lower()}"
    encode = partial(blosc2_encode, filter_name, level)
    return Peer(name, "blosc2==4.14.1", encode, blosc2_decode, f"zstd, level {level}")


_SLICED, _ALL, _ONE = "one slice a thread", "decodes with all cores", "decodes in one thread"
PEERS = (
    *map(_ours, EFFORTS),
    Peer(REFERENCE, "zipnn==0.5.4", zipnn_encode, zipnn_decode),
    Peer("pcodec", "pcodec==1.1.0", pcodec_encode, pcodec_decode, _SLICED, slow=True),
    # At level 1 weights come out smaller than at the default 5, and five times as fast.
    _blosc2("SHUFFLE", 1),
    _blosc2("BITSHUFFLE", 5),
    Peer("z4ai", "z4ai==0.2.0", z4ai_encode, z4ai_decode, _ALL, slow=True),
    Peer("OpenZL", "openzl==0.3.0", openzl_encode, openzl_decode, _SLICED),
    Peer("zstd", "zstandard==0.25.0", zstd_encode, zstd_decode, _ONE),
)
