"""What others make of a checkpoint beside its base: ZipNN's delta, z4ai's, moonclip, zstd.

Each peer codes a whole file given another one and gives it back; moonclip, which keeps checkpoints
in a folder of its own, saves the base and then the new tensors, and what the second save adds is
counted. FM-Delta is on no registry; `pairs` has its figures as measured once.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.series.pairs import Element


class Peer(ABC):
    """A codec with a pair of files before it.

    Parameters
    ----------
    base, new : Path
        Safetensors files.
    element : {"bfloat16", "float32"}
    threads : int
        Those that the codec may use, where it lets one say so.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    threaded: ClassVar[bool] = True

    def __init__(self, base: Path, new: Path, element: Element, threads: int) -> None:
        self.base, self.new, self.element, self.threads = base, new, element, threads
        self.encoded: Any = None

    @abstractmethod
    def encode(self) -> None:
        """Encode the new file."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes of what was encoded."""

    @abstractmethod
    def decode(self) -> Any:
        """Give back the new file, or its tensors."""

    def exact(self, decoded: Any) -> bool:
        """Return whether what was decoded is what was encoded."""
        return bytes(decoded) == self.new.read_bytes()

    def close(self) -> None:  # noqa: B027 - most write nothing
        """Remove what was written."""


class InMemory(Peer):
    """A codec of buffers, which are read before its time counts."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.raw_base, self.raw_new = self.base.read_bytes(), self.new.read_bytes()

    def size(self) -> int:
        """Return the length of the encoding."""
        return len(self.encoded)


class ZipNN(InMemory):
    """XOR, byte planes, Huffman; it changes its input in place, so that it is given copies."""

    name, package = "ZipNN Δ", "zipnn"

    def _coder(self) -> Any:
        return import_module("zipnn").ZipNN(
            input_format="byte",
            delta_compressed_type="byte",
            bytearray_dtype=self.element,
            threads=self.threads,
        )

    def encode(self) -> None:
        """Compress the XOR with the base."""
        second = bytearray(self.raw_base)
        self.encoded = self._coder().compress(bytearray(self.raw_new), delta_second_data=second)

    def decode(self) -> Any:
        """Decompress."""
        second = bytearray(self.raw_base)
        return self._coder().decompress(self.encoded, delta_second_data=second)


class Z4ai(InMemory):
    """Per tensor a copy, XOR and byte planes, or the tensor alone."""

    name, package = "z4ai Δ", "z4ai"

    def encode(self) -> None:
        """Compress with the default level."""
        codec = import_module("z4ai.model_delta")
        self.encoded = codec.compress(self.raw_new, self.raw_base, threads=self.threads)

    def decode(self) -> Any:
        """Decompress; there is no setting of threads."""
        return import_module("z4ai.model_delta").decompress(self.encoded, self.raw_base)


class Zstd(InMemory):
    """XOR of both files in byte planes, zstd: what BitX, moonclip and others have in common."""

    name, package, threaded = "XOR, planes, zstd 9", "zstandard", False

    def _xor(self, raw: bytes) -> Any:
        return np.bitwise_xor(np.frombuffer(raw, np.uint8), np.frombuffer(self.raw_base, np.uint8))

    def encode(self) -> None:
        """Compress all planes as one; headers of other lengths are not provided for."""
        width = 2 if self.element == "bfloat16" else 4
        padded = np.zeros(-(-len(self.raw_new) // width) * width, np.uint8)
        padded[: len(self.raw_new)] = self._xor(self.raw_new)
        planes = np.ascontiguousarray(padded.reshape(-1, width).T)
        self.encoded = import_module("zstandard").ZstdCompressor(level=9).compress(planes)

    def decode(self) -> Any:
        """Decompress."""
        planes = import_module("zstandard").ZstdDecompressor().decompress(self.encoded)
        width = 2 if self.element == "bfloat16" else 4
        xor = np.frombuffer(planes, np.uint8).reshape(width, -1).T.reshape(-1)
        return self._xor(xor[: len(self.raw_new)].tobytes()).tobytes()


class Moonclip(Peer):
    """A store of checkpoints: per tensor a skip, or XOR, byte shuffle and zstd 3."""

    name, package, threaded = "moonclip", "moonclip", False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        from safetensors.torch import load_file

        self.folder = tempfile.TemporaryDirectory()
        self.tensors = load_file(self.new)
        manager = import_module("moonclip").CheckpointManager
        self.manager = manager(self.folder.name, async_save=False)
        self.manager.save_raw(1, load_file(self.base))
        self.manager.flush()
        self.before = self._stored()

    def _stored(self) -> int:
        return sum(
            path.stat().st_size for path in Path(self.folder.name).rglob("*") if path.is_file()
        )

    def encode(self) -> None:
        """Save the new tensors."""
        self.encoded = self.manager.save_raw(2, self.tensors)
        self.manager.flush()

    def size(self) -> int:
        """Return the bytes that the save added."""
        return self._stored() - self.before

    def decode(self) -> Any:
        """Load the bytes of all tensors."""
        return self.manager.load_tensors(self.encoded, list(self.tensors))

    def exact(self, decoded: Any) -> bool:
        """Compare the bytes of all tensors."""
        import torch

        return decoded.keys() == self.tensors.keys() and all(
            bytes(decoded[name]) == value.reshape(-1).view(torch.uint8).numpy().tobytes()
            for name, value in self.tensors.items()
        )

    def close(self) -> None:
        """Remove the store."""
        self.folder.cleanup()


class Tensorcomp(Peer):
    """The whole file of ``tensorcomp compress NEW --base OLD``, and of decompressing it."""

    name, package = "tensorcomp", "tensorcomp"
    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.folder = tempfile.TemporaryDirectory()
        self.packed = Path(self.folder.name, "new.tc.safetensors")
        self.restored = Path(self.folder.name, "new.safetensors")

    def encode(self) -> None:
        """Compress to a file."""
        import tensorcomp

        self.encoded = tensorcomp.compress(
            self.new,
            self.packed,
            base=self.base,
            threads=self.threads,
            force=True,
            **self.options,
        )

    def size(self) -> int:
        """Return the bytes of the file."""
        return self.packed.stat().st_size

    def decode(self) -> Any:
        """Decompress to a file."""
        import tensorcomp

        tensorcomp.decompress(
            self.packed, self.restored, bases=self.base, threads=self.threads, force=True
        )
        return self.restored

    def exact(self, decoded: Any) -> bool:
        """Compare the files."""
        restored: bytes = decoded.read_bytes()
        return restored == self.new.read_bytes()

    def close(self) -> None:
        """Remove the files."""
        self.folder.cleanup()


class Alone(Tensorcomp):
    """The same without a base."""

    name = "tensorcomp alone"

    def encode(self) -> None:
        """Compress to a file."""
        import tensorcomp

        self.encoded = tensorcomp.compress(self.new, self.packed, threads=self.threads, force=True)

    def decode(self) -> Any:
        """Decompress to a file."""
        import tensorcomp

        tensorcomp.decompress(self.packed, self.restored, threads=self.threads, force=True)
        return self.restored


class Smallest(Tensorcomp):
    """The same at ``effort="max"``."""

    name = "tensorcomp max"
    options: ClassVar[Mapping[str, Any]] = {"effort": "max"}


class Training(Tensorcomp):
    """The same by ``--profile training``, for states with moments."""

    name = "tensorcomp training"
    options: ClassVar[Mapping[str, Any]] = {"profile": "training"}


PEERS = (Zstd, ZipNN, Z4ai, Moonclip, Alone, Tensorcomp, Smallest, Training)
