"""What stands in for the functions of a network while paths through it are followed.

Each keeps zero where no path arrives, and not where one does: a rectifier that happens to be off, a
normalisation that takes equal signals away, or a saturated sigmoid would hide a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_CLOSED = -1e4  # masks of attention are −∞, or the lowest number of a narrow type


class FollowedPaths(TorchFunctionMode):
    """Replaces functions of torch in a block: activations, normalisations, attention, pooling.

    After layers with weights, numbers other than zero become numbers around 1, in the gradient as
    well, so that nothing overflows or vanishes however deep the network is. They are drawn at
    random, so that none cancels another.
    """

    def __init__(self) -> None:
        super().__init__()
        self._draws = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in _LAYERS:
            return self._even(func(*args, **kwargs))
        if name == "multi_head_attention_forward":
            return self._multi_head_attention(*args, **kwargs)
        rule = _RULES.get(name)
        return func(*args, **kwargs) if rule is None else rule(*args, **kwargs)

    def _even(self, signal: torch.Tensor) -> torch.Tensor:
        self._draws += 2
        evened: torch.Tensor = _Even.apply(signal, self._draws)  # type: ignore[no-untyped-call]
        return evened

    def _multi_head_attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        _embed_dim: int,
        heads: int,
        in_weight: torch.Tensor | None,
        _in_bias: torch.Tensor | None,
        _bias_k: torch.Tensor | None,
        _bias_v: torch.Tensor | None,
        _zero: object,
        _dropout: float,
        out_weight: torch.Tensor,
        *_: Any,
        q_proj_weight: torch.Tensor | None = None,
        k_proj_weight: torch.Tensor | None = None,
        v_proj_weight: torch.Tensor | None = None,
        **__: Any,
    ) -> tuple[torch.Tensor, None]:
        """Attend everywhere; inputs are (length, features) or (length, samples, features)."""
        own = (q_proj_weight, k_proj_weight, v_proj_weight)
        weights = own if in_weight is None else in_weight.chunk(3)

        def split(inputs: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
            assert weight is not None
            projected = self._even(F.linear(inputs, weight))
            return projected.reshape(*inputs.shape[:-1], heads, -1).movedim(0, -2)

        queries, keys, values = map(split, (query, key, value), weights)
        mixed = attention(queries, keys, values).movedim(-2, 0).flatten(-2)
        return self._even(F.linear(mixed, out_weight)), None


class _Even(torch.autograd.Function):
    """Numbers that are not zero become ±1, times a factor drawn from [0.5, 1.5)."""

    @staticmethod
    def forward(ctx: Any, signal: torch.Tensor, seed: int) -> torch.Tensor:
        ctx.seed = seed
        return _evened(signal, seed)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _evened(gradients[0], ctx.seed + 1), None


def _evened(signal: torch.Tensor, seed: int) -> torch.Tensor:
    # The sign of NaN is 0, which would pass for a place that nothing reaches.
    return drawn(signal, seed).mul_(signal.sign()).masked_fill_(signal.isnan(), torch.nan)


def drawn(like: torch.Tensor, seed: int) -> torch.Tensor:
    """Return random numbers in [0.5, 1.5), the same each time, of a tensor's shape and type."""
    generator = torch.Generator(like.device).manual_seed(seed)
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device).add_(
        0.5
    )


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return what attention passes on, where it is open, through queries, keys and values."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.transpose(-2, -1) / query.shape[-1]
    if is_causal:
        ahead = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -torch.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        else:
            scores = scores + attn_mask
    return _softmax(scores) @ value


def _softmax(scores: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Open wherever it is not closed by a mask, whatever the scores."""
    closed = scores <= _CLOSED
    return (1 + scores.masked_fill(closed, 0)).masked_fill(closed, 0)


def _same(signal: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return signal


def _opened(signal: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Stand in for functions that are not zero at zero."""
    return 1 + signal


def _last_axes(
    signal: torch.Tensor, _shape: object, weight: torch.Tensor | None = None, *_: Any, **__: Any
) -> torch.Tensor:
    return signal if weight is None else signal * weight


def _channels(signal: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    return signal if weight is None else signal * weight.view(-1, *[1] * (signal.ndim - 2))


def _group_norm(
    signal: torch.Tensor, _groups: int, weight: torch.Tensor | None = None, *_: Any, **__: Any
) -> torch.Tensor:
    return _channels(signal, weight)


def _batch_norm(
    signal: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    *_: Any,
    **__: Any,
) -> torch.Tensor:
    return _channels(signal, weight)


def _embedding(tokens: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Take all tokens at once: what the example does not hold may come, too."""
    return weight.mean(0).expand(*tokens.shape, -1)


def _pool(axes: int) -> Callable[..., torch.Tensor]:
    mean = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[axes - 1]
    largest = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]

    def pool(
        signal: torch.Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: Any = False,
        **_: Any,
    ) -> torch.Tensor:
        if dilation not in (1, (1,) * axes, [1] * axes):
            pooled: torch.Tensor = largest(
                signal, kernel_size, stride, padding, dilation, ceil_mode=ceil_mode
            )
            return pooled
        return mean(signal, kernel_size, stride, padding, ceil_mode)

    return pool


def _adaptive_pool(axes: int) -> Callable[..., torch.Tensor]:
    mean = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[axes - 1]

    def pool(signal: torch.Tensor, output_size: Any, *_: Any, **__: Any) -> torch.Tensor:
        pooled: torch.Tensor = mean(signal, output_size)
        return pooled

    return pool


_LAYERS = {"linear", "bilinear"} | {
    f"conv{kind}{axes}d" for kind in ("", "_transpose") for axes in (1, 2, 3)
}
_ZERO_AT_ZERO = (
    "relu relu_ relu6 leaky_relu leaky_relu_ rrelu elu elu_ selu selu_ celu celu_ gelu silu silu_ "
    "mish hardswish hardtanh hardtanh_ tanh tanh_ softsign tanhshrink softshrink hardshrink "
    "log_softmax"
)
_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_ZERO_AT_ZERO.split(), _same),
    **dict.fromkeys(("sigmoid", "sigmoid_", "hardsigmoid", "softplus"), _opened),
    "softmax": _softmax,
    "scaled_dot_product_attention": attention,
    "layer_norm": _last_axes,
    "rms_norm": _last_axes,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _batch_norm,
    "embedding": _embedding,
    **{f"max_pool{axes}d": _pool(axes) for axes in (1, 2, 3)},
    **{f"adaptive_max_pool{axes}d": _adaptive_pool(axes) for axes in (1, 2, 3)},
}
