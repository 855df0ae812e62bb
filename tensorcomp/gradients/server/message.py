"""Write and read messages: the compressed gradients of one worker and step.

A message is a safetensors file in memory, as a compressed checkpoint is: a `U8` entry for each
gradient holds the blob that such a checkpoint holds for such a tensor. Its header is compressed,
with a typical header as the dictionary::

    uint64  bytes of the header, little-endian
    header  of a safetensors file, compressed by zstd
    blobs, back to back
    uint64  XXH3-64 of everything before

The entry ``tensorcomp.gradients`` of the header's metadata is JSON: ``{"version": 2, "step": 7,
"worker": 2, "weight": 0.5, "texts": ["topk(0.01, …)", …], "tensors": [["F32", [256, 64], 0], …]}``,
a tensor's dtype, shape and number of its compressor's text for each entry. Nothing in it is code.
"""

from __future__ import annotations

import functools
import io
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from tensorcomp import _zstd_frames as zstd
from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header, read_header
from tensorcomp.dtypes import dtype_name, numpy_dtype
from tensorcomp.errors import (
    PARSING_ERRORS,
    CheckpointError,
    CodecError,
    FormatError,
    GradientError,
    TensorcompError,
)
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.text import parse_compressor

MAX_GRADIENT_BYTES = 1 << 32  # that a message may decode to, unless its reader says otherwise
_KEY = "tensorcomp.gradients"
_VERSION = 2
_LEVEL = 3
# What most headers have in common, as the dictionary of their compression: part of the format.
_TYPICAL = (
    rb'{"__metadata__":{"tensorcomp.gradients":"{\"version\":2,\"step\":0,\"worker\":0,'
    rb"\"weight\":1.0,\"texts\":[\"topk(mask=gaps, values=affine(bits=8, scales=fields("
    rb"exponent=huffman(contexts=8), mantissa=bitpack), codes=bitpack))\"],\"tensors\":["
    rb'[\"F32\",[64,128],0],[\"F32\",[64],0]]}"},"0.weight":{"dtype":"U8","shape":[64],'
    rb'"data_offsets":[0,64]},"0.bias":{"dtype":"U8","shape":[64],"data_offsets":[64,128]}}'
)
_WORD = struct.Struct("<Q")
_MAX_HEADER = 1 << 26
_MAX_GROWTH = 1 << 10  # times that an honest header may shrink
_MAX_AXES = 32
_DTYPES = ("F32", "F64")


@dataclass(frozen=True)
class Message:
    """Hold the compressed gradients of one worker at one step.

    Parameters
    ----------
    step : int
        Optimizer steps before this one.
    worker : int
        The number of who sends it.
    weight : float
        What its gradients count for in a mean.
    payloads : mapping of str to Payload
        By the name of the parameter.
    texts : mapping of str to str
        The canonical text of the compressor of each payload.
    """

    step: int
    worker: int
    weight: float
    payloads: Mapping[str, Payload]
    texts: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        numbers = {text: number for number, text in enumerate(dict.fromkeys(self.texts.values()))}
        about = {
            "version": _VERSION,
            "step": self.step,
            "worker": self.worker,
            "weight": self.weight,
            "texts": list(numbers),
            "tensors": [
                [dtype_name(one.spec.dtype), list(one.spec.shape), numbers[self.texts[name]]]
                for name, one in self.payloads.items()
            ],
        }
        blobs = [payload.data for payload in self.payloads.values()]
        infos = [
            TensorInfo(name, "U8", (len(blob),), len(blob))
            for name, blob in zip(self.payloads, blobs, strict=True)
        ]
        text = json.dumps(about, separators=(",", ":"))
        header = zstd.compress(build_header(infos, {_KEY: text}), _LEVEL, like=_TYPICAL)
        content = b"".join([_WORD.pack(len(header)), header, *blobs])
        return content + _WORD.pack(xxhash.xxh3_64_intdigest(content))

    @classmethod
    def from_bytes(cls, data: bytes, *, limit: int = MAX_GRADIENT_BYTES) -> Message:
        """Read a message; its payloads are not decoded yet.

        Raises
        ------
        CodecError
            If it is damaged.
        GradientError
            If it was written by a newer version, or decodes to more bytes than the limit.
        """
        view, end = memoryview(data), len(data) - _WORD.size
        if end < _WORD.size:
            raise CodecError(f"{len(data)} bytes are no message of compressed gradients")
        if _WORD.unpack_from(data, end)[0] != xxhash.xxh3_64_intdigest(view[:end]):
            raise CodecError("the checksum of a message is wrong; it is damaged or cut short")
        start = _WORD.size + _WORD.unpack_from(data)[0]
        if start > end:
            raise CodecError(f"a message's header of {start} bytes ends behind the message")
        try:
            return cls._from_file(view[_WORD.size : start], view[start:end], limit)
        except (*PARSING_ERRORS, zstd.ZstdError, CheckpointError) as error:
            raise CodecError(f"a message's header is damaged ({error})") from error

    @classmethod
    def _from_file(cls, packed: memoryview, blobs: memoryview, limit: int) -> Message:
        """Return the message of a compressed header and blobs, or raise any error."""
        most = min(_MAX_HEADER, _MAX_GROWTH * len(packed) + 4096)
        text = zstd.decompress(packed, most, like=_TYPICAL)
        header = read_header(io.BytesIO(text), len(text) + len(blobs), "a message")
        about = json.loads((header.metadata or {})[_KEY])
        if about["version"] != _VERSION:
            raise GradientError(
                f"expected a message of version {_VERSION}, got {shown(about['version'])}; "
                "use the same version of tensorcomp on both ends"
            )
        step, worker = _integer(about["step"], low=0), _integer(about["worker"], low=-1)
        weight = about["weight"]
        if type(weight) not in (int, float) or not 0 < weight < math.inf:
            raise ValueError(f"a weight is {shown(weight)}")
        payloads: dict[str, Payload] = {}
        texts: dict[str, str] = {}
        left = limit
        entries = zip(header.offsets.items(), about["tensors"], strict=True)
        for (name, (begin, stop)), (dtype, shape, number) in entries:
            spec = GradientSpec(name, *_checked(name, dtype, shape, left), worker=worker)
            left -= spec.nbytes
            payloads[name] = Payload(bytes(blobs[begin:stop]), spec)
            texts[name] = about["texts"][_integer(number, low=0)]
            if not isinstance(texts[name], str):
                raise TypeError(f"the compressor of {name!r} is no text")
        return cls(step, worker, float(weight), payloads, texts)

    def decoded(self) -> dict[str, DecodedGradient]:
        """Return what each payload decodes to, sparse where it is.

        Damaged ones are refused, and compressors' texts that cannot be understood.
        """
        found = {}
        for name, payload in self.payloads.items():
            compressor = _reader(self.texts[name])
            try:
                found[name] = compressor.receive(payload)
            except (CodecError, FormatError) as error:
                raise CodecError(f"the gradient of {name!r} is damaged: {error}") from error
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the gradients; errors are those of `decoded`."""
        decoded = self.decoded()
        return {name: one.array(self.payloads[name].spec) for name, one in decoded.items()}


def decompress(data: bytes, *, limit: int = MAX_GRADIENT_BYTES) -> dict[str, np.ndarray]:
    """Return the gradients of a message.

    Parameters
    ----------
    data : bytes
        From `WorkerCompression.compress`, or an answer of an `Aggregator`.
    limit : int, optional
        Bytes that they may take together.

    Returns
    -------
    dict of str to numpy.ndarray
        float32, or float64 where it was that.

    Raises
    ------
    CodecError
        If the message is damaged.
    GradientError
        If it decodes to more than the limit, or by a compressor that is not known here.
    """
    return Message.from_bytes(data, limit=limit).arrays()


@functools.lru_cache(maxsize=256)
def _reader(text: str) -> Compressor:
    """Return a compressor that reads payloads of a canonical text."""
    try:
        compressor = parse_compressor(text, feedback=False)
    except (TensorcompError, ValueError, RecursionError) as error:
        raise GradientError(f"payloads of {text[:200]!r} cannot be read: {error}") from error
    if compressor.text() != text:
        raise GradientError(
            f"payloads of {text[:200]!r} cannot be read: write it as {compressor.text()[:200]!r}"
        )
    return compressor


def _integer(value: Any, *, low: int) -> int:
    if type(value) is not int or not low <= value < 1 << 63:
        raise ValueError(f"{value!r} is no integer from {low} to 2**63")
    return value


def _checked(name: str, dtype: Any, shape: Any, limit: int) -> tuple[tuple[int, ...], np.dtype]:
    """Return a tensor's shape and dtype, before anything is made of that size."""
    if dtype not in _DTYPES:
        raise ValueError(f"{name!r} is of type {dtype!r}")
    if not isinstance(shape, list) or len(shape) > _MAX_AXES:
        raise ValueError(f"{name!r} has no shape")
    numpy_type = numpy_dtype(dtype)
    assert numpy_type is not None
    axes = tuple(_integer(axis, low=0) for axis in shape)
    nbytes = numpy_type.itemsize * math.prod(axes)
    # An axis of a tensor without elements is a claim as well.
    if max(nbytes, *axes, 0) > limit:
        raise GradientError(
            f"a message decodes to more than its limit: {name!r} of shape {axes} takes "
            f"{nbytes:,} bytes, {limit:,} are left; raise the limit if that is what was sent"
        )
    return axes, numpy_type
