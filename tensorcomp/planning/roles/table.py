"""The table that tells a tensor's role: the first line that fits decides.

A line names the role, what to search for in the name, and a tensor that it is for. Names are those
of Hugging Face transformers, timm, torchvision, plain PyTorch and its optimizers; they are read in
lower case, with dots for slashes.
"""

from __future__ import annotations

import re

from tensorcomp.planning.roles.rules import (
    Place,
    RoleRule,
    beside_running_mean,
    chooses,
    in_attention,
    kernel,
    like_an_embedding,
    matrices,
    matrix,
    of_fused_attention,
    one_axis,
    one_element,
    part,
    pattern_over_pairs,
    short_kernel,
    three_axes,
    vector,
    weight_and_bias_alike,
)

_Q = r"wq(?:_[ab])?|w_?q|(?:add_)?q_proj(?:_weight)?|q_[ab]_proj|to_q|q_lin(?:ear)?|linear_q|q_attn"
_K = r"wk|w_?k|(?:add_)?k_proj(?:_weight)?|to_k|k_lin(?:ear)?|linear_k"
_V = r"wv|w_?v|(?:add_)?v_proj(?:_weight)?|to_v|v_lin(?:ear)?|linear_v"
_O = r"o_proj|out_lin|to_out|o_lin(?:ear)?"
_HEADS = (
    r"lm_head|embed_out|output_layer|(?:pre_)?classifiers?|\w+_head|heads?|pooler|score|cls_score|"
    r"(?:class|bbox)_embed|bbox_pred|qa_outputs|logits?|(?:text|visual)_projection|predictions|"
    r"vocab_\w+|seq_relationship|generator"
)
_FEED_FORWARD = (
    r"(?:^|[._])(?:mlp|ffn?|ffw|feed_?forward|densereludense|(?:shared_)?experts?)\d*"
    r"(?=[._]|$)(?!.*att(?:n|ention))"
)
_FEED_FORWARD_LAYERS = (
    r"(?:gate|up|down|gate_up|c)_proj|c_fc|fc_?\d*|fc_(?:in|out)|lin(?:ear)?_?\d+|intermediate|"
    r"output|dense_h_to_4h|dense_4h_to_h|pwconv\d|w[123io]|wi_\d"
)

RULES: tuple[RoleRule, ...] = (
    # Optimizers.
    RoleRule("step", r"(?:^|[._])steps?$", "state.0.step", (), one_element),
    RoleRule("moment.second", r"exp_avg_sq|exp_inf|square_avg", "state.0.exp_avg_sq"),
    RoleRule("moment.second", r"(?:^|\.)state\.\d+\.sum$|opt_state\..*\bnu\b", "state.3.sum"),
    RoleRule("moment.first", r"exp_avg|momentum_buffer|grad_avg", "optimizer.state.0.exp_avg"),
    RoleRule("moment.first", r"opt_state\..*\b(?:mu|trace)\b", "opt_state/0/mu/dense/kernel"),
    RoleRule("optimizer", r"(?:^|\.)(?:state\.\d+\.|opt_state\.)|optimizer", "state.0.prev"),
    # Statistics, masks, positions and routers, whose names hold others' words.
    RoleRule("norm", r"(?:running|moving)_(?:mean|var)", "bn1.running_mean", (64,)),
    RoleRule(
        "norm",
        r"(?:^|\.)(?:weight|bias)$",
        "layer2.0.downsample.1.weight",
        (64,),
        beside_running_mean,
        "beside running_mean",
        {"layer2.0.downsample.1.running_mean": (64,)},
    ),
    RoleRule(
        "mask",
        r"att(?:n|ention)\.(?:masked_)?bias$|attn_mask",
        "h.0.attn.bias",
        (1, 1, 64, 64),
        pattern_over_pairs,
    ),
    RoleRule("position", r"pos(?:ition(?:al|s)?)?_?emb", "embeddings.position_embeddings.weight"),
    RoleRule("position", r"embed_positions|(?:^|\.)wpe(?=\.|$)", "h.wpe.weight"),
    RoleRule("position", r"relative_attention_bias|rel(?:ative)?_?pos|rel_emb", "attn.rel_pos_h"),
    RoleRule("position", r"pos(?:ition)?_bias|distance_embedding|r_[rw]_bias", "attn.pos_bias_u"),
    RoleRule("position", r"inv_freq|rotary|(?:cos|sin)_cached|freqs", "rotary_emb.inv_freq", (32,)),
    RoleRule("router", r"router|e_score_correction", "model.layers.0.mlp.router.weight", (8, 64)),
    RoleRule("router", r"shared_expert_gate|gate\.wg", "mlp.shared_expert_gate.weight", (1, 64)),
    RoleRule(
        "router",
        part("gate|gating") + r"\.weight$",
        "model.layers.0.block_sparse_moe.gate.weight",
        (8, 64),
        chooses,
        "a gate of fewer rows than columns",
    ),
    # What is added or multiplied, channel by channel.
    RoleRule("norm", r"norm", "model.layers.0.input_layernorm.weight", (64,), vector),
    RoleRule("norm", part(r"(?:\w+_)?(?:ln|bn)(?:_\w+|\d+)?"), "h.0.ln_1.bias", (64,), vector),
    RoleRule(
        "norm",
        r"(?:^|\.)(?:weight|bias)$",
        "features.0.1.weight",
        (96,),
        weight_and_bias_alike,
        "weight and bias of one axis",
        {"features.0.1.bias": (96,)},
    ),
    RoleRule("scale", r"(?:^|[._])(?:scales?|scale_inv|gamma(?:_?\d+)?)$", "q.scales", (64, 1)),
    RoleRule(
        "scale", r"layer_?scale|lambda_?\d*$|temperature|zero_?points?$|absmax", "lambda1", (64,)
    ),
    RoleRule("scale", r"weight_g$|weight\.original0$", "conv.weight_g", (64, 1, 1)),
    RoleRule("scale", r"(?:^|\.)a_log$", "layers.0.mixer.A_log", (64, 16)),
    RoleRule("bias", r"(?:^|[._])bias(?:_\w+)?$", "encoder.query.bias", (64,)),
    RoleRule("bias", r"(?:^|[._])beta$", "block.beta", (64,)),
    # Weights, by shape where that says all, else by name.
    RoleRule("conv", r"", "layer1.0.conv1.weight", (64, 64, 3, 3), kernel, "four axes or more"),
    RoleRule("conv", r"conv", "encoder.conv1.weight", (64, 80, 3), three_axes),
    RoleRule("head", part(_HEADS), "lm_head.weight", fits=matrix),
    RoleRule("head", r"^(?!.*att)(?:[a-z_]+\.){0,2}_?fc\.weight$", "fc.weight", fits=matrix),
    RoleRule(
        "head",
        r"^(?!.*att)(?:[a-z_]+\.)?(?:output|proj_out)\.weight$",
        "output.weight",
        fits=matrix,
    ),
    RoleRule("head", r"(?:^|\.)visual\.proj$", "visual.proj", fits=matrix),
    RoleRule("mlp", _FEED_FORWARD, "layers.0.feed_forward.key.weight", fits=matrices),
    RoleRule("attention.qkv", r"qkv|query_key_value|in_proj_weight", "blocks.0.attn.qkv.weight"),
    RoleRule(
        "attention.qkv", part(r"c_attn|w_pack|to_kv|kv_proj|kv_[ab]_proj\w*"), "h.0.c_attn.weight"
    ),
    RoleRule(
        "attention.qkv", in_attention(r"in_proj|kv|key_value"), "attention.self.in_proj.weight"
    ),
    RoleRule("attention.q", part(_Q), "model.layers.0.self_attn.q_proj.weight", fits=matrices),
    RoleRule("attention.q", in_attention(r"q|query\w*"), "attention.query.weight", fits=matrices),
    RoleRule("attention.k", part(_K), "model.layers.0.self_attn.k_proj.weight", fits=matrices),
    RoleRule("attention.k", in_attention(r"k|key\w*"), "SelfAttention.k.weight", fits=matrices),
    RoleRule("attention.v", part(_V), "model.layers.0.self_attn.v_proj.weight", fits=matrices),
    RoleRule("attention.v", in_attention(r"v|value\w*"), "attention.value.weight", fits=matrices),
    RoleRule("attention.o", part(_O), "model.layers.0.self_attn.o_proj.weight", fits=matrices),
    RoleRule(
        "attention.o",
        in_attention(r"o|wo|proj|c_proj|out|out_proj|output|dense|fc|linear_out"),
        "encoder.layer.0.attention.output.dense.weight",
        fits=matrices,
    ),
    RoleRule(
        "attention.o",
        r"out_proj\.weight$",
        "block.mha.out_proj.weight",
        fits=of_fused_attention,
        why="beside in_proj_weight",
        around={"block.mha.in_proj_weight": (192, 64)},
    ),
    RoleRule("attention", r"att(?:n|ention)", "self_attn.linear_pos.weight", fits=matrices),
    RoleRule(
        "recurrent", r"weight_[ih]h|(?:^|\.)(?:lstm|gru|rnn)", "lstm.weight_ih_l0", fits=matrix
    ),
    RoleRule(
        "embedding",
        r"(?:cls|dist|mask|class|register|query|task)_tokens?$",
        "cls_token",
        (1, 1, 64),
    ),
    RoleRule("embedding", r"class_embedding$", "vision_model.embeddings.class_embedding", (64,)),
    RoleRule(
        "embedding",
        part(r"(?:\w+_)?embed(?:ding|dings|s)?(?:_tokens|_in)?|\w*_?emb|wte|shared")
        + r"(?:\.\d+)?(?:\.weight|\.embedding)?$",
        "model.embed_tokens.weight",
        fits=matrix,
    ),
    RoleRule("mlp", part(_FEED_FORWARD_LAYERS), "encoder.layers.0.linear1.weight", fits=matrices),
    RoleRule(
        "head",
        r"weight$",
        "decoder.weight",
        (99, 64),
        like_an_embedding,
        "a matrix of an embedding's shape",
        {"encoder.embedding.weight": (99, 64)},
    ),
    # What no name tells.
    RoleRule("norm", r"(?:^|\.)weight$", "1.weight", (64,), one_axis, "a weight of one axis"),
    RoleRule("conv", r"", "layer.weight", (64, 32, 3), short_kernel, "three axes, the last short"),
    RoleRule("matrix", r"", "0.weight", (64, 64), matrix, "two axes"),
    RoleRule("vector", r"", "w", (64,), one_axis, "one axis"),
    RoleRule("scalar", r"", "w", (), lambda place: not place.shape, "no axes"),
    RoleRule("other", r"", "w", (4, 64, 64), why="no rule knows it"),
)


_LAYER_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def numbered_alike(name: str) -> str:
    """Return a name with the same number for all layers: no pattern cares which it is."""
    return _LAYER_NUMBER.sub("0", name)


class MatchingRules:
    """The lines whose pattern is in a name, looked for only as far as they are asked for.

    Parameters
    ----------
    name : str
    """

    def __init__(self, name: str) -> None:
        self._found: list[RoleRule] = []
        self._more = (rule for rule in RULES if rule.is_in(name))

    def first_fitting(self, place: Place) -> RoleRule:
        """Return the first that fits, as the last of all always does.

        Parameters
        ----------
        place : Place
            Of this name, or of one numbered alike.
        """
        number = 0
        while True:
            if number == len(self._found):
                self._found.append(next(self._more))
            rule = self._found[number]
            if rule.fits is None or rule.fits(place):
                return rule
            number += 1
