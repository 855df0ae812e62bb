"""Other libraries' formats for weights, measured beside ours where they happen to be installed.

None is a dependency, and none is imported before it is used. A peer's bytes are all that its
decoder needs besides shape and type.
"""

from __future__ import annotations

import importlib
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from tensorcomp.errors import NotRepresentable

# Bytes, and what gives the array back.
PeerCode: TypeAlias = "tuple[int, Callable[[], np.ndarray]]"


@dataclass(frozen=True)
class Peer:
    """A format of another library.

    Parameters
    ----------
    label, family : str
    package : str
        Its module, which is also the name of its distribution unless `distribution` says another.
    encode : callable
        Takes an array and its root mean square. Raises `NotRepresentable` for arrays of a shape or
        type that it cannot take.
    distribution : str
    """

    label: str
    family: str
    package: str
    encode: Callable[[np.ndarray, float], PeerCode]
    distribution: str = ""

    def available(self) -> bool:
        """Return whether its module is installed; it is not imported."""
        try:
            return find_spec(self.package) is not None
        except (ImportError, ValueError):
            return False

    @property
    def source(self) -> str:
        """The package and its version."""
        name = self.distribution or self.package
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return name


@cache
def _module(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@cache
def _nncodec() -> Any:
    """Import NNCodec without its example applications, which want much that is not needed here."""
    applications = ("tensorflow_model", "pytorch_model", "use_case_init")
    empty = {name: ModuleType(name) for name in (f"nncodec.framework.{n}" for n in applications)}
    missing = {name: module for name, module in empty.items() if name not in sys.modules}
    sys.modules.update(missing)
    try:
        return _module("nncodec.nnc")
    finally:
        for name in missing:
            sys.modules.pop(name, None)


def _by_nncodec(bits: float, array: np.ndarray, scale: float) -> PeerCode:
    """Code by ISO/IEC 15938-17 at the package's defaults; 4 more ``qp`` double the step."""
    if not scale:
        raise NotRepresentable("NNCodec: all zeros have no step")
    step = math.sqrt(2 * math.pi * math.e) * scale * 2.0**-bits
    stream = _nncodec().compress(
        {"0": array.astype(np.float32)},
        bitstream_path=None,
        qp=round(4 * math.log2(step / 2)),  # of both quantizers together
        row_skipping=True,
        return_bitstream=True,
    )
    return len(stream), lambda: _nncodec().decompress(stream)["0"]


def _by_gguf(kind: str, array: np.ndarray, scale: float) -> PeerCode:
    """Code by a block format of GGUF; a tensor goes flattened, without the file's header."""
    gguf = _module("gguf")
    number = gguf.GGMLQuantizationType[kind]
    block, _ = gguf.GGML_QUANT_SIZES[number]
    if array.size % block:
        raise NotRepresentable(f"{kind}: {array.size} elements are no multiple of {block}")
    row = array.astype(np.float32).reshape(1, -1)
    blocks = gguf.quants.quantize(row, number)
    return blocks.nbytes, lambda: gguf.quants.dequantize(blocks, number)


_ZIPNN_TYPES = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}


def _by_zipnn(array: np.ndarray, scale: float) -> PeerCode:
    """Code without loss by ZipNN at its defaults, on one thread."""
    dtype = _ZIPNN_TYPES.get(array.dtype.name)
    if dtype is None:
        raise NotRepresentable(f"ZipNN: it has no type {array.dtype}")
    zipnn = _module("zipnn").ZipNN
    make = partial(zipnn, input_format="byte", bytearray_dtype=dtype, threads=1)
    data = make().compress(array.tobytes())  # a copy, whose bits ZipNN reorders in place
    return len(data), lambda: np.frombuffer(make().decompress(data), array.dtype)


PEERS: tuple[Peer, ...] = (
    Peer("ZipNN", "ZipNN", "zipnn", _by_zipnn),
    *(
        Peer(f"GGUF {kind}", f"GGUF {kind}", "gguf", partial(_by_gguf, kind))
        for kind in ("Q8_0", "Q5_0", "Q4_0")
    ),
    *(
        Peer(f"NNCodec, {bits} bits", "NNCodec", "nncodec", partial(_by_nncodec, bits))
        for bits in (3, 4, 5)
    ),
)
