from __future__ import annotations

import pytest

from tensorcomp.planning import classify


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "role"),
    [
        ("model.layers.0.self_attn.q_proj.weight", "BF16", (64, 64), "attention"),
        ("model.layers.0.mlp.gate_proj.weight", "BF16", (64, 64), "mlp"),
        ("model.layers.0.block_sparse_moe.gate.weight", "BF16", (8, 64), "router"),
        ("model.layers.0.input_layernorm.weight", "F32", (64,), "norm"),
        ("model.embed_tokens.weight", "F16", (99, 64), "embedding"),
        ("lm_head.weight", "F16", (99, 64), "embedding"),
        ("encoder.layer.0.attention.self.query.bias", "F32", (64,), "bias"),
        ("h.0.attn.c_attn.weight", "F32", (64, 192), "attention"),
        ("h.0.ln_1.weight", "F32", (64,), "norm"),
        ("bn1.running_mean", "F32", (64,), "norm"),
        ("bn1.num_batches_tracked", "I64", (), "integer"),
        ("embeddings.position_ids", "I64", (1, 512), "integer"),
        ("attn.mask", "BOOL", (9, 9), "boolean"),
        ("packed", "F4", (9, 9), "opaque"),
        ("new", "F99", (9, 9), "opaque"),
        ("optimizer.state.0.exp_avg", "F32", (9, 9), "optimizer"),
        ("q.scales", "F16", (9, 1), "scale"),
        ("features.0.weight", "F32", (8, 3, 3, 3), "convolution"),
        ("w", "F32", (8, 3), "matrix"),
        ("w", "F32", (8,), "vector"),
        ("w", "F32", (), "scalar"),
        ("", "F32", (), "scalar"),
    ],
)
def test_roles(name: str, dtype: str, shape: tuple[int, ...], role: str) -> None:
    assert classify(name, dtype, shape) == role
