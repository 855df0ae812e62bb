"""The parts that transforms make of a tensor, made on its device, and what they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch

from tensorcomp.codecs.base import ArraySpec, Codec
from tensorcomp.codecs.floats.cast import Cast
from tensorcomp.codecs.quantize.affine import Affine
from tensorcomp.codecs.quantize.sign import Sign
from tensorcomp.codecs.sparse.selection import kept_count
from tensorcomp.codecs.sparse.threshold import Threshold
from tensorcomp.codecs.sparse.topk import TopK
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.gradients.cuda.transforms import (
    affine_parts,
    largest_positions,
    positions_above,
    restored,
    sign_parts,
)
from tensorcomp.gradients.payload.sparse_blobs import is_sparse

_FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16}


def has_device_way(node: Node) -> bool:
    """Return whether the root of a tree is computed on devices; all others go to the host whole."""
    codec = node.codec
    if isinstance(codec, Cast):
        return codec.to in _FLOATS
    return isinstance(codec, (Affine, Sign)) or (
        isinstance(codec, (TopK, Threshold)) and is_sparse(node)
    )


def positions_of(codec: Codec, flat: torch.Tensor) -> torch.Tensor:
    """Return the flat indices that a codec with a mask keeps, ascending, int64."""
    if isinstance(codec, TopK):
        return largest_positions(flat, kept_count(codec.keep, flat.numel()))
    return positions_above(flat, cast(Threshold, codec).value)


def parts_of(codec: Codec, array: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what the codec's `encode` gives, on the device."""
    if isinstance(codec, Affine):
        return affine_parts(array, codec)
    if isinstance(codec, Sign):
        return sign_parts(array, codec)
    dtype = _FLOATS[cast(Cast, codec).to]
    if float(array.abs().max()) > torch.finfo(dtype).max:
        raise NotRepresentable(f"cast: an element is beyond the largest {dtype}")
    return {"values": array.to(dtype)}


def combined(codec: Codec, parts: Mapping[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Return what the codec's `decode` gives, on the device."""
    if isinstance(codec, Affine):
        return restored(parts["codes"], parts["scales"], codec.group, dtype, parts.get("zeros"))
    if isinstance(codec, Sign):
        codes = 1 - 2 * parts["signs"].to(torch.int8)
        return restored(codes, parts["scales"], codec.group, dtype)
    return parts["values"].to(dtype)


def received_parts(
    codec: Codec,
    parts: Mapping[str, np.ndarray],
    spec: ArraySpec,
    device: torch.device,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return a chunk of the parts that were received, once they are checked."""
    _check(codec, parts)
    found = {}
    for name, part in parts.items():
        plain = part.view(np.int16) if isinstance(codec, Cast) else part
        tensor = torch.from_numpy(plain).to(device)
        found[name] = tensor.view(_FLOATS[codec.to]) if isinstance(codec, Cast) else tensor
    values = combined(codec, found, dtype)
    if isinstance(codec, Cast) and not bool(torch.isfinite(values).all()):
        raise CodecError("cast: a value is NaN or infinite")
    return values.reshape(spec.shape)


def _check(codec: Codec, parts: Mapping[str, np.ndarray]) -> None:
    if isinstance(codec, Cast):
        return
    scales, zeros = parts["scales"], parts.get("zeros")
    if not (np.isfinite(scales).all() and (zeros is None or np.isfinite(zeros).all())):
        raise CodecError(f"{codec.id}: a scale or an offset is not finite")
    if isinstance(codec, Affine):
        codes = parts["codes"]
        most = (1 << (codec.bits - codec.symmetric)) - 1
        if codes.max() > most or codes.min() < -most:
            raise CodecError(f"affine: a code is not within {codec.bits} bits")
    elif parts["signs"].view(np.uint8).max() > 1:
        raise CodecError("sign: a byte of the signs is neither 0 nor 1")
