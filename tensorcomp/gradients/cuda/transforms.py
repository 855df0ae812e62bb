"""Compute on a device what the transforms of the wire compute on the host.

All of it gives the codecs' own parts, bit for bit, unless it says otherwise. Arrays of one number
a group are small: they go to the host and through the codecs themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tensorcomp._torch_arrays import as_tensor
from tensorcomp.codecs.base import Codec
from tensorcomp.codecs.floats.cast import Cast
from tensorcomp.codecs.quantize.affine import Affine
from tensorcomp.codecs.quantize.groups import Groups
from tensorcomp.codecs.quantize.sign import Sign
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.gradients.payload.arrays import host

_FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16}


def computes(codec: Codec) -> bool:
    """Test whether a transform's parts are computed on devices."""
    return isinstance(codec, Affine | Sign) or (isinstance(codec, Cast) and codec.to in _FLOATS)


def parts_of(codec: Codec, array: torch.Tensor) -> dict[str, torch.Tensor]:
    """Compute on a device the parts that ``codec.encode`` gives.

    Raises
    ------
    NotRepresentable
        As `encode` does.
    """
    parts: Callable[..., dict[str, torch.Tensor]] = _PARTS[type(codec)]
    return parts(array, codec)


def _affine_parts(array: torch.Tensor, codec: Affine) -> dict[str, torch.Tensor]:
    groups = Groups.of(tuple(array.shape), codec.group)
    runs = _runs(array, groups)
    if codec.symmetric:
        small = replace(codec, group=1).encode(host(runs.abs().amax(-1).reshape(-1)))
    else:
        ends = torch.stack([runs.amin(-1).reshape(-1), runs.amax(-1).reshape(-1)], dim=1)
        small = replace(codec, group=2).encode(host(ends))
    del small["codes"]
    parts = {name: torch.from_numpy(part).to(array.device) for name, part in small.items()}
    scales, *zeros = (
        part.to(torch.float64).reshape(runs.shape[:-1]).unsqueeze(-1) for part in parts.values()
    )
    values = runs.to(torch.float64)
    if zeros:
        values = values - zeros[0]
    codes = torch.where(scales > 0, values / scales, 0.0).to(array.dtype).round()
    kind = torch.int8 if codec.symmetric else torch.uint8
    return {**parts, "codes": _whole(codes.to(kind), groups).reshape(array.shape)}


def _sign_parts(array: torch.Tensor, codec: Sign) -> dict[str, torch.Tensor]:
    """Return scales and signs.

    The sum of a group has no fixed order here, and about one scale in 10**12 may be the one beside.
    """
    groups = Groups.of(tuple(array.shape), codec.group)
    runs = _runs(array, groups, fill=0.0).abs().to(torch.float64)
    counts = torch.full(runs.shape[:-1], float(groups.length), device=array.device)
    counts[..., -1] = groups.columns - (runs.shape[-2] - 1) * groups.length
    means = host((runs.sum(-1) / counts).to(array.dtype).reshape(-1))
    scales = Sign(1).encode(means)["scales"]
    return {"scales": torch.from_numpy(scales).to(array.device), "signs": array < 0}


def _cast_parts(array: torch.Tensor, codec: Cast) -> dict[str, torch.Tensor]:
    dtype = _FLOATS[codec.to]
    if float(array.abs().max()) > torch.finfo(dtype).max:
        raise NotRepresentable(f"cast: an element is beyond the largest {dtype}")
    return {"values": array.to(dtype)}


_PARTS: Mapping[type, Callable[..., Any]] = {
    Affine: _affine_parts,
    Cast: _cast_parts,
    Sign: _sign_parts,
}


def restore(codec: Codec, parts: Mapping[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Combine parts on their device, as ``codec.decode`` does."""
    if isinstance(codec, Cast):
        return parts["values"].to(dtype)
    codes = parts["codes"] if isinstance(codec, Affine) else 1 - 2 * parts["signs"].to(torch.int8)
    groups = Groups.of(tuple(codes.shape), codec.group)  # type: ignore[attr-defined]
    runs = _runs(codes, groups).to(torch.float64)
    values = runs * parts["scales"].to(torch.float64).reshape(runs.shape[:-1]).unsqueeze(-1)
    if "zeros" in parts:
        values += parts["zeros"].to(torch.float64).reshape(runs.shape[:-1]).unsqueeze(-1)
    limit = torch.finfo(dtype).max
    return _whole(values.clamp(-limit, limit).to(dtype), groups).reshape(codes.shape)


def receive(
    codec: Codec, parts: Mapping[str, np.ndarray], device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    """Check received parts and combine them on a device.

    Raises
    ------
    CodecError
        As `decode` does.
    """
    if isinstance(codec, Affine):
        codes, most = parts["codes"], (1 << (codec.bits - codec.symmetric)) - 1
        if codes.max() > most or codes.min() < -most:
            raise CodecError(f"affine: a code is not within {codec.bits} bits")
    elif isinstance(codec, Sign) and parts["signs"].view(np.uint8).max() > 1:
        raise CodecError("sign: a byte of the signs is neither 0 nor 1")
    if not all(np.isfinite(parts[name]).all() for name in ("scales", "zeros") if name in parts):
        raise CodecError(f"{codec.id}: a scale or an offset is not finite")
    values = restore(codec, {k: as_tensor(part).to(device) for k, part in parts.items()}, dtype)
    if isinstance(codec, Cast) and not bool(torch.isfinite(values).all()):
        raise CodecError("cast: a value is NaN or infinite")
    return values


def _runs(array: torch.Tensor, groups: Groups, fill: float | None = None) -> torch.Tensor:
    """Return an array as (rows, groups of a row, length); what a last group lacks is filled up.

    By its last element, where no number is given: it changes neither least nor greatest.
    """
    matrix = array.reshape(groups.rows, groups.columns)
    short = -groups.columns % groups.length
    if short:
        last = matrix[:, -1:] if fill is None else torch.full_like(matrix[:, -1:], fill)
        matrix = torch.cat([matrix, last.expand(-1, short)], dim=1)
    return matrix.reshape(groups.rows, -1, groups.length)


def _whole(runs: torch.Tensor, groups: Groups) -> torch.Tensor:
    return runs.reshape(groups.rows, -1)[:, : groups.columns].contiguous()
