"""A message: the compressed gradients of one worker and step, in bytes that explain themselves.

::

    4 bytes "TCGM"                       uint32  version
    uint64  bytes of the header
    header  JSON, compressed by zstd
    payloads, back to back: the blobs that a compressed checkpoint holds for such tensors
    uint64  XXH3-64 of everything before

The header is ``{"step": 7, "worker": 2, "weight": 0.5, "texts": ["topk(0.01, …)", …],
"tensors": [[name, "F32", [256, 64], 0, bytes], …]}``; a tensor names its compressor's text by
number. Integers are little-endian. Nothing in it is code.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from tensorcomp._zstd_frames import ZstdError, compress, decompress
from tensorcomp.dtypes import dtype_name, numpy_dtype
from tensorcomp.errors import CodecError, FormatError, GradientError, TensorcompError
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload
from tensorcomp.gradients.payload.decoded import DecodedGradient

LIMIT = 1 << 32  # bytes of gradients that a message may decode to, unless its reader says otherwise
_MAGIC = b"TCGM"
_VERSION = 1
_HEAD = struct.Struct("<4sIQ")
_CHECKSUM = struct.Struct("<Q")
_LARGEST_HEADER = 1 << 26
_GROWTH = 1 << 10  # times that an honest header may shrink
_MOST_AXES = 32
_DTYPES = ("F32", "F64")
_LEVEL = 3
_UNREADABLE = (
    *(ValueError, LookupError, TypeError, OverflowError, RecursionError),
    ZstdError,
)


@dataclass(frozen=True)
class Message:
    """The compressed gradients of one worker at one step.

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
        tensors = [
            [
                name,
                dtype_name(payload.spec.dtype),
                list(payload.spec.shape),
                numbers[self.texts[name]],
                len(payload.data),
            ]
            for name, payload in self.payloads.items()
        ]
        header = {
            "step": self.step,
            "worker": self.worker,
            "weight": self.weight,
            "texts": list(numbers),
            "tensors": tensors,
        }
        plain = json.dumps(header, separators=(",", ":")).encode()
        packed = compress(plain, _LEVEL)
        head = _HEAD.pack(_MAGIC, _VERSION, len(packed))
        content = b"".join([head, packed, *(p.data for p in self.payloads.values())])
        return content + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(content))

    @classmethod
    def from_bytes(cls, data: bytes, *, limit: int = LIMIT) -> Message:
        """Read a message; its payloads are not decoded yet.

        Parameters
        ----------
        data : bytes
        limit : int, optional
            Bytes that all gradients together may decode to.

        Raises
        ------
        CodecError
            If it is damaged.
        GradientError
            If it was written by a newer version, or decodes to more than the limit.
        """
        end = len(data) - _CHECKSUM.size
        if end < _HEAD.size or data[:4] != _MAGIC:
            raise CodecError(f"{len(data)} bytes are no message of compressed gradients")
        _, version, size = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise GradientError(
                f"a message is of version {version}, this tensorcomp reads {_VERSION}; "
                "let both ends use the same"
            )
        view = memoryview(data)
        if _CHECKSUM.unpack_from(data, end)[0] != xxhash.xxh3_64_intdigest(view[:end]):
            raise CodecError("the checksum of a message is wrong; it is damaged or cut short")
        start = _HEAD.size + size
        if start > end:
            raise CodecError(f"a message's header of {size} bytes ends behind the message")
        try:
            return _from_header(_unpacked(view[_HEAD.size : start]), view[start:end], limit)
        except _UNREADABLE as error:
            raise CodecError(f"a message's header is damaged ({error})") from error

    def received(self) -> dict[str, DecodedGradient]:
        """Return what each payload decodes to, sparse where it is.

        Raises
        ------
        CodecError
            If one is damaged.
        GradientError
            If a compressor's text cannot be understood.
        """
        return {name: self._received(name) for name in self.payloads}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the gradients; errors are those of `received`."""
        arrays = {}
        for name, payload in self.payloads.items():
            arrays[name] = np.zeros(payload.spec.shape, payload.spec.dtype)
            self._received(name).add_to(arrays[name].reshape(-1), 1.0)
        return arrays

    def _received(self, name: str) -> DecodedGradient:
        payload = self.payloads[name]
        compressor = reader_of(self.texts[name])
        try:
            return compressor.receive(payload)
        except (CodecError, FormatError) as error:
            raise CodecError(f"the gradient of {name!r} is damaged: {error}") from error


@functools.lru_cache(maxsize=256)
def reader_of(text: str) -> Compressor:
    """Return a compressor that reads the payloads of all compressors with a text.

    Raises
    ------
    GradientError
        If the text is not the canonical one of a compressor that this version knows.
    """
    from tensorcomp.gradients.recipes import parse_compressor

    try:
        compressor = parse_compressor(text, feedback=False)
    except (TensorcompError, ValueError, RecursionError) as error:
        raise GradientError(f"payloads of {text[:200]!r} cannot be read: {error}") from error
    if compressor.text() != text:
        raise GradientError(
            f"payloads of {text[:200]!r} cannot be read: write it as {compressor.text()[:200]!r}"
        )
    return compressor


def _unpacked(packed: memoryview) -> Any:
    most = min(_LARGEST_HEADER, _GROWTH * len(packed) + 4096)
    return json.loads(decompress(packed, most))


def _from_header(header: Any, content: memoryview, limit: int) -> Message:
    step, worker = _integer(header["step"], low=0), _integer(header["worker"], low=-1)
    weight = header["weight"]
    if type(weight) not in (int, float) or not 0 < weight < math.inf:
        raise ValueError(f"a weight is {weight!r}")
    texts = header["texts"]
    payloads: dict[str, Payload] = {}
    read_by: dict[str, str] = {}
    start, left = 0, limit
    for name, dtype, shape, number, nbytes in header["tensors"]:
        spec = GradientSpec(*_checked(name, dtype, shape, left), worker=worker)
        left -= spec.nbytes
        if name in payloads:
            raise ValueError(f"{name!r} is there twice")
        stop = start + _integer(nbytes, low=0)
        if stop > len(content):
            raise ValueError(f"the payload of {name!r} ends behind the message")
        payloads[name] = Payload(bytes(content[start:stop]), spec)
        read_by[name] = texts[_integer(number, low=0)]
        start = stop
        if not isinstance(read_by[name], str):
            raise TypeError(f"the compressor of {name!r} is no text")
    if start != len(content):
        raise ValueError(f"payloads take {start} bytes, the message has {len(content)}")
    return Message(step, worker, float(weight), payloads, read_by)


def _integer(value: Any, *, low: int) -> int:
    if type(value) is not int or not low <= value < 1 << 63:
        raise ValueError(f"{value!r} is no integer from {low} to 2**63")
    return value


def _checked(
    name: Any, dtype: Any, shape: Any, limit: int
) -> tuple[str, tuple[int, ...], np.dtype]:
    """Return what a header says of a tensor, before anything is made of that size."""
    if not isinstance(name, str) or dtype not in _DTYPES:
        raise ValueError(f"{name!r} is of type {dtype!r}")
    if not isinstance(shape, list) or len(shape) > _MOST_AXES:
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
    return name, axes, numpy_type
