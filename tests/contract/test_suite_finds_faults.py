"""The contract suite must fail on codecs that break it: each class here breaks one promise."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from tensorcomp.codecs import Node
from tensorcomp.codecs.base import ArraySpec, Pieces, Serializer, Transform
from tensorcomp.codecs.entropy.raw import Raw
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.testing import codec_checks, nasty_arrays


@dataclass(frozen=True)
class Plain(Serializer):
    """Store the bytes. Layout: they. Lossless. Cost: O(n)."""

    id: ClassVar[str] = "plain"

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        return [array.tobytes()]

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        if data.size != out.nbytes:
            raise CodecError("another size")
        out.reshape(-1).view(np.uint8)[:] = data


class LosesZeroSigns(Plain):
    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        return [(array + np.float32(0)).tobytes() if array.dtype == "f4" else array.tobytes()]


class Forgets(Plain):
    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        super().decode(data, out)
        if out.size == 1:
            out[...] = 0


class ChangesInput(Plain):
    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        before = array.tobytes()
        if array.size:
            base = array.base if isinstance(array.base, np.ndarray) else array
            if base.flags.writeable:
                base.reshape(-1).view(np.uint8)[:1] ^= 1
        return [before]


class CountsCalls(Plain):
    calls: ClassVar[list[int]] = []

    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        self.calls.append(0)
        return [array.tobytes()[:-1], bytes([len(self.calls) % 256])] if array.nbytes else []

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        super().decode(data, out)


class RaisesIndexError(Plain):
    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        if out.size:
            data[out.nbytes - 1]
        super().decode(data, out)


class TrustsClaims(Plain):
    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        return [array.nbytes.to_bytes(4, "little"), array.tobytes()[:-4]] if array.nbytes else []

    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        np.zeros(min(int.from_bytes(data[:4].tobytes(), "little"), 1 << 28), np.uint8)
        raise CodecError("always")


class Refuses(Plain):
    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        raise NotRepresentable("never")


class FitsAtRandom(Plain):
    calls: ClassVar[list[int]] = []

    def fit(self, array: np.ndarray) -> bytes:
        self.calls.append(0)
        return bytes([len(self.calls) % 256])


@dataclass(frozen=True)
class NoDocs(Plain):
    """Store the bytes."""


class Sloppy(Plain):
    __setattr__ = object.__setattr__


@dataclass(frozen=True)
class Wrong(Transform):
    """Promise other parts than are given. Parts: ``all``. Lossless. Cost: O(n)."""

    id: ClassVar[str] = "wrong"
    default_parts: ClassVar[dict[str, str]] = {"all": "raw"}

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        return {"all": spec}

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        return {"all": array.reshape(-1)}

    def decode(self, parts: Any, out: np.ndarray, shared: bytes = b"") -> None:
        out[...] = parts["all"]


@pytest.mark.parametrize(
    ("codec", "check"),
    [
        (LosesZeroSigns(), "restores arrays"),
        (Forgets(), "restores arrays"),
        (ChangesInput(), "keeps its input"),
        (CountsCalls(), "is deterministic"),
        (RaisesIndexError(), "refuses damaged payloads"),
        (TrustsClaims(), "refuses damaged payloads"),
        (Refuses(), "codes some array itself"),
        (FitsAtRandom(), "shares between chunks"),
        (NoDocs(), "documents itself"),
        (Sloppy(), "is a frozen value"),
        (Wrong(), "gives the parts that it promises"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, (Serializer, Transform)) else "",
)
def test_a_broken_promise_is_found(codec, check):
    children = (("all", Node(Raw())),) if isinstance(codec, Transform) else ()
    few = {
        name: nasty_arrays()[name] for name in ("scalar", "weights float32", "zeros of both signs")
    }
    checks = {found.name: found for found in codec_checks(Node(codec, children), arrays=few)}
    with pytest.raises(AssertionError):
        checks[check]()


def test_a_sound_codec_passes_what_needs_no_registry():
    for check in codec_checks(Node(Plain())):
        if "text" not in check.name and "JSON" not in check.name:
            check()
