"""Names and shapes of well-known models, with the role of each tensor: written by hand."""

# role, name, shape
FAMILIES = {
    "torchvision ResNet": """
        conv | conv1.weight | 64 3 7 7
        norm | bn1.weight | 64
        norm | bn1.bias | 64
        norm | bn1.running_mean | 64
        conv | layer1.0.conv1.weight | 64 64 3 3
        conv | layer1.0.downsample.0.weight | 128 64 1 1
        norm | layer1.0.downsample.1.weight | 128
        norm | layer1.0.downsample.1.bias | 128
        norm | layer1.0.downsample.1.running_mean | 128
        norm | layer1.0.downsample.1.running_var | 128
        head | fc.weight | 1000 512
        bias | fc.bias | 1000
    """,
    "timm ViT": """
        embedding | cls_token | 1 1 192
        position | pos_embed | 1 197 192
        conv | patch_embed.proj.weight | 192 3 16 16
        bias | patch_embed.proj.bias | 192
        norm | blocks.0.norm1.weight | 192
        norm | blocks.0.norm1.bias | 192
        attention.qkv | blocks.0.attn.qkv.weight | 576 192
        bias | blocks.0.attn.qkv.bias | 576
        norm | blocks.0.attn.q_norm.weight | 64
        attention.o | blocks.0.attn.proj.weight | 192 192
        bias | blocks.0.attn.proj.bias | 192
        scale | blocks.0.ls1.gamma | 192
        mlp | blocks.0.mlp.fc1.weight | 768 192
        mlp | blocks.0.mlp.fc2.weight | 192 768
        norm | norm.weight | 192
        head | head.weight | 1000 192
        bias | head.bias | 1000
    """,
    "torchvision ViT": """
        embedding | class_token | 1 1 768
        conv | conv_proj.weight | 768 3 16 16
        position | encoder.pos_embedding | 1 197 768
        norm | encoder.layers.encoder_layer_0.ln_1.weight | 768
        attention.qkv | encoder.layers.encoder_layer_0.self_attention.in_proj_weight | 2304 768
        bias | encoder.layers.encoder_layer_0.self_attention.in_proj_bias | 2304
        attention.o | encoder.layers.encoder_layer_0.self_attention.out_proj.weight | 768 768
        mlp | encoder.layers.encoder_layer_0.mlp.linear_1.weight | 3072 768
        mlp | encoder.layers.encoder_layer_0.mlp.0.weight | 3072 768
        norm | encoder.ln.weight | 768
        head | heads.head.weight | 1000 768
    """,
    "GPT-2": """
        embedding | wte.weight | 50257 768
        position | wpe.weight | 1024 768
        norm | h.0.ln_1.weight | 768
        norm | h.0.ln_1.bias | 768
        mask | h.0.attn.bias | 1 1 1024 1024
        mask | h.0.attn.masked_bias |
        attention.qkv | h.0.attn.c_attn.weight | 768 2304
        bias | h.0.attn.c_attn.bias | 2304
        attention.o | h.0.attn.c_proj.weight | 768 768
        bias | h.0.attn.c_proj.bias | 768
        mlp | h.0.mlp.c_fc.weight | 768 3072
        bias | h.0.mlp.c_fc.bias | 3072
        mlp | h.0.mlp.c_proj.weight | 3072 768
        bias | h.0.mlp.c_proj.bias | 768
        norm | ln_f.weight | 768
        norm | ln_f.bias | 768
        head | lm_head.weight | 50257 768
    """,
    "nanoGPT": """
        embedding | transformer.wte.weight | 50304 768
        attention.qkv | transformer.h.0.attn.c_attn.weight | 2304 768
        bias | transformer.h.0.attn.c_attn.bias | 2304
        attention.o | transformer.h.0.attn.c_proj.weight | 768 768
        bias | transformer.h.0.attn.c_proj.bias | 768
        mlp | transformer.h.0.mlp.c_fc.weight | 3072 768
        bias | transformer.h.0.mlp.c_fc.bias | 3072
    """,
    "BERT": """
        embedding | bert.embeddings.word_embeddings.weight | 30522 768
        position | bert.embeddings.position_embeddings.weight | 512 768
        embedding | bert.embeddings.token_type_embeddings.weight | 2 768
        norm | bert.embeddings.LayerNorm.gamma | 768
        norm | bert.embeddings.LayerNorm.beta | 768
        attention.q | bert.encoder.layer.0.attention.self.query.weight | 768 768
        bias | bert.encoder.layer.0.attention.self.query.bias | 768
        attention.k | bert.encoder.layer.0.attention.self.key.weight | 768 768
        attention.v | bert.encoder.layer.0.attention.self.value.weight | 768 768
        attention.o | bert.encoder.layer.0.attention.output.dense.weight | 768 768
        norm | bert.encoder.layer.0.attention.output.LayerNorm.weight | 768
        mlp | bert.encoder.layer.0.intermediate.dense.weight | 3072 768
        bias | bert.encoder.layer.0.intermediate.dense.bias | 3072
        mlp | bert.encoder.layer.0.output.dense.weight | 768 3072
        norm | bert.encoder.layer.0.output.LayerNorm.bias | 768
        head | bert.pooler.dense.weight | 768 768
        bias | bert.pooler.dense.bias | 768
        bias | cls.predictions.bias | 30522
        head | cls.predictions.transform.dense.weight | 768 768
        norm | cls.predictions.transform.LayerNorm.weight | 768
        head | cls.predictions.decoder.weight | 30522 768
        head | cls.seq_relationship.weight | 2 768
        head | qa_outputs.weight | 2 768
    """,
    "DistilBERT and ALBERT": """
        attention.q | distilbert.transformer.layer.0.attention.q_lin.weight | 768 768
        attention.o | distilbert.transformer.layer.0.attention.out_lin.weight | 768 768
        norm | distilbert.transformer.layer.0.sa_layer_norm.weight | 768
        mlp | distilbert.transformer.layer.0.ffn.lin1.weight | 3072 768
        head | pre_classifier.weight | 768 768
        head | vocab_projector.weight | 30522 768
        matrix | albert.encoder.embedding_hidden_mapping_in.weight | 768 128
        mlp | encoder.albert_layer_groups.0.albert_layers.0.ffn_output.weight | 768 3072
        attention.o | encoder.albert_layer_groups.0.albert_layers.0.attention.dense.weight | 768 768
    """,
    "LLaMA, Mistral, Qwen": """
        embedding | model.embed_tokens.weight | 32000 4096
        norm | model.layers.0.input_layernorm.weight | 4096
        attention.q | model.layers.0.self_attn.q_proj.weight | 4096 4096
        attention.k | model.layers.0.self_attn.k_proj.weight | 1024 4096
        attention.v | model.layers.0.self_attn.v_proj.weight | 1024 4096
        attention.o | model.layers.0.self_attn.o_proj.weight | 4096 4096
        bias | model.layers.0.self_attn.q_proj.bias | 4096
        norm | model.layers.0.self_attn.q_norm.weight | 128
        position | model.layers.0.self_attn.rotary_emb.inv_freq | 64
        mlp | model.layers.0.mlp.gate_proj.weight | 11008 4096
        mlp | model.layers.0.mlp.up_proj.weight | 11008 4096
        mlp | model.layers.0.mlp.down_proj.weight | 4096 11008
        norm | model.layers.0.post_attention_layernorm.weight | 4096
        norm | model.norm.weight | 4096
        head | lm_head.weight | 32000 4096
    """,
    "LLaMA as first released": """
        embedding | tok_embeddings.weight | 32000 4096
        attention.q | layers.0.attention.wq.weight | 4096 4096
        attention.k | layers.0.attention.wk.weight | 4096 4096
        attention.v | layers.0.attention.wv.weight | 4096 4096
        attention.o | layers.0.attention.wo.weight | 4096 4096
        mlp | layers.0.feed_forward.w1.weight | 11008 4096
        mlp | layers.0.feed_forward.w2.weight | 4096 11008
        mlp | layers.0.feed_forward.w3.weight | 11008 4096
        norm | layers.0.attention_norm.weight | 4096
        norm | layers.0.ffn_norm.weight | 4096
        norm | norm.weight | 4096
        head | output.weight | 32000 4096
        position | rope.freqs | 64
    """,
    "tiny_lm": """
        embedding | embedding.weight | 256 160
        attention.k | layers.0.attention.key.weight | 160 160
        attention.o | layers.0.attention.output.weight | 160 160
        attention.q | layers.0.attention.query.weight | 160 160
        norm | layers.0.attention_norm.weight | 160
        mlp | layers.0.feed_forward.down.weight | 160 448
        mlp | layers.0.feed_forward.gate.weight | 448 160
        mlp | layers.0.feed_forward.up.weight | 448 160
        norm | layers.0.feed_forward_norm.weight | 160
        norm | norm.weight | 160
    """,
    "T5": """
        embedding | shared.weight | 32128 512
        embedding | encoder.embed_tokens.weight | 32128 512
        attention.q | encoder.block.0.layer.0.SelfAttention.q.weight | 512 512
        attention.k | encoder.block.0.layer.0.SelfAttention.k.weight | 512 512
        attention.v | encoder.block.0.layer.0.SelfAttention.v.weight | 512 512
        attention.o | encoder.block.0.layer.0.SelfAttention.o.weight | 512 512
        position | encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight | 32 8
        norm | encoder.block.0.layer.0.layer_norm.weight | 512
        mlp | encoder.block.0.layer.1.DenseReluDense.wi.weight | 2048 512
        mlp | encoder.block.0.layer.1.DenseReluDense.wi_0.weight | 2048 512
        mlp | encoder.block.0.layer.1.DenseReluDense.wo.weight | 512 2048
        attention.o | decoder.block.0.layer.1.EncDecAttention.o.weight | 512 512
        norm | encoder.final_layer_norm.weight | 512
        head | lm_head.weight | 32128 512
    """,
    "Mixtral, DeepSeek, gpt-oss, Switch, DBRX": """
        router | model.layers.0.block_sparse_moe.gate.weight | 8 4096
        mlp | model.layers.0.block_sparse_moe.experts.0.w1.weight | 14336 4096
        mlp | model.layers.0.block_sparse_moe.experts.0.w2.weight | 4096 14336
        router | model.layers.1.mlp.gate.weight | 256 7168
        router | model.layers.1.mlp.gate.e_score_correction_bias | 256
        mlp | model.layers.1.mlp.shared_experts.gate_proj.weight | 2048 7168
        router | model.layers.1.mlp.shared_expert_gate.weight | 1 2048
        mlp | model.layers.1.mlp.experts.3.gate_proj.weight | 2048 7168
        attention.qkv | model.layers.1.self_attn.kv_a_proj_with_mqa.weight | 576 7168
        norm | model.layers.1.self_attn.kv_a_layernorm.weight | 512
        attention.qkv | model.layers.1.self_attn.kv_b_proj.weight | 32768 512
        attention.q | model.layers.1.self_attn.q_a_proj.weight | 1536 7168
        attention.q | model.layers.1.self_attn.q_b_proj.weight | 24576 1536
        scale | model.layers.1.self_attn.q_b_proj.weight_scale_inv | 192 12
        router | model.layers.2.mlp.router.weight | 32 2880
        router | model.layers.2.mlp.router.bias | 32
        mlp | model.layers.2.mlp.experts.gate_up_proj | 32 2880 5760
        bias | model.layers.2.mlp.experts.gate_up_proj_bias | 32 5760
        vector | model.layers.2.self_attn.sinks | 64
        router | encoder.block.1.layer.1.mlp.router.classifier.weight | 8 768
        mlp | encoder.block.1.layer.1.mlp.experts.expert_0.wi.weight | 2048 768
        router | transformer.blocks.0.ffn.router.layer.weight | 16 6144
        router | layers.0.moe.gate.wg.weight | 8 1024
    """,
    "CLIP": """
        scale | logit_scale |
        head | text_projection.weight | 512 512
        head | visual_projection.weight | 512 768
        embedding | text_model.embeddings.token_embedding.weight | 49408 512
        position | text_model.embeddings.position_embedding.weight | 77 512
        attention.k | text_model.encoder.layers.0.self_attn.k_proj.weight | 512 512
        attention.o | text_model.encoder.layers.0.self_attn.out_proj.weight | 512 512
        norm | text_model.encoder.layers.0.layer_norm1.weight | 512
        mlp | text_model.encoder.layers.0.mlp.fc1.weight | 2048 512
        embedding | vision_model.embeddings.class_embedding | 768
        conv | vision_model.embeddings.patch_embedding.weight | 768 3 32 32
        norm | vision_model.pre_layrnorm.weight | 768
        norm | vision_model.pre_layrnorm.bias | 768
        position | positional_embedding | 77 512
        head | text_projection | 512 512
        head | visual.proj | 768 512
        norm | visual.ln_pre.weight | 768
        attention.qkv | transformer.resblocks.0.attn.in_proj_weight | 1536 512
        attention.o | transformer.resblocks.0.attn.out_proj.weight | 512 512
        mlp | transformer.resblocks.0.mlp.c_fc.weight | 2048 512
        bias | transformer.resblocks.0.mlp.c_fc.bias | 2048
        mlp | transformer.resblocks.0.mlp.c_proj.weight | 512 2048
        embedding | token_embedding.weight | 49408 512
    """,
    "Whisper": """
        conv | model.encoder.conv1.weight | 384 80 3
        position | model.encoder.embed_positions.weight | 1500 384
        attention.k | model.encoder.layers.0.self_attn.k_proj.weight | 384 384
        attention.o | model.encoder.layers.0.self_attn.out_proj.weight | 384 384
        norm | model.encoder.layers.0.self_attn_layer_norm.weight | 384
        mlp | model.encoder.layers.0.fc1.weight | 1536 384
        norm | model.encoder.layers.0.final_layer_norm.weight | 384
        embedding | model.decoder.embed_tokens.weight | 51865 384
        attention.v | model.decoder.layers.0.encoder_attn.v_proj.weight | 384 384
        head | proj_out.weight | 51865 384
        attention.q | encoder.blocks.0.attn.query.weight | 384 384
        attention.o | encoder.blocks.0.attn.out.weight | 384 384
        norm | encoder.blocks.0.attn_ln.weight | 384
        mlp | encoder.blocks.0.mlp.0.weight | 1536 384
        position | encoder.positional_embedding | 1500 384
        norm | decoder.blocks.0.cross_attn_ln.weight | 384
    """,
    "Bloom, Falcon, GPT-NeoX, Phi, MPT, InternLM": """
        norm | transformer.word_embeddings_layernorm.weight | 1024
        attention.qkv | transformer.h.0.self_attention.query_key_value.weight | 3072 1024
        attention.o | transformer.h.0.self_attention.dense.weight | 1024 1024
        mlp | transformer.h.0.mlp.dense_h_to_4h.weight | 4096 1024
        embedding | gpt_neox.embed_in.weight | 50304 512
        position | gpt_neox.layers.0.attention.rotary_emb.inv_freq | 8
        attention.o | gpt_neox.layers.0.attention.dense.weight | 512 512
        head | embed_out.weight | 50304 512
        attention.qkv | model.layers.0.self_attn.qkv_proj.weight | 9216 3072
        mlp | model.layers.0.mlp.gate_up_proj.weight | 16384 3072
        attention.o | model.layers.0.self_attn.dense.weight | 2560 2560
        attention.qkv | transformer.h.0.mixer.Wqkv.weight | 6144 2048
        mlp | model.layers.1.mlp.fc1.weight | 8192 2048
        attention.qkv | transformer.blocks.0.attn.Wqkv.weight | 3072 1024
        mlp | transformer.blocks.0.ffn.up_proj.weight | 4096 1024
        attention.qkv | model.layers.0.attention.wqkv.weight | 6144 4096
        attention.qkv | model.layers.0.self_attn.W_pack.weight | 12288 4096
        attention.k | h.0.attn.k_proj.weight | 64 64
        attention.o | transformer.h.0.attn.attention.out_proj.weight | 64 64
    """,
    "plain PyTorch": """
        attention.qkv | encoder.layers.0.self_attn.in_proj_weight | 192 64
        bias | encoder.layers.0.self_attn.in_proj_bias | 192
        attention.o | encoder.layers.0.self_attn.out_proj.weight | 64 64
        mlp | encoder.layers.0.linear1.weight | 256 64
        mlp | encoder.layers.0.linear2.weight | 64 256
        norm | encoder.layers.0.norm1.weight | 64
        attention.qkv | decoder.layers.0.multihead_attn.in_proj_weight | 192 64
        bias | decoder.layers.0.multihead_attn.out_proj.bias | 64
        matrix | 0.weight | 128 784
        bias | 0.bias | 128
        matrix | 2.weight | 10 128
        bias | 2.bias | 10
        attention.qkv | mha.in_proj_weight | 192 64
        attention.o | mha.out_proj.weight | 64 64
        attention.q | mha.q_proj_weight | 64 64
        bias | mha.bias_k | 1 1 64
        recurrent | lstm.weight_ih_l0 | 256 64
        bias | lstm.bias_hh_l0 | 256
        mlp | fc1.weight | 120 400
        mlp | fc3.weight | 10 84
        conv | features.0.weight | 64 3 3 3
        head | classifier.6.weight | 1000 4096
        scale | conv.weight_g | 64 1 1
        scale | conv.parametrizations.weight.original0 | 64 1 1
        conv | conv.parametrizations.weight.original1 | 64 32 3
        norm | prelu.weight | 1
        embedding | encoder.embedding.weight | 999 64
        head | decoder.weight | 999 64
    """,
    "optimizers": """
        head | model.fc.weight | 10 64
        step | optimizer.state.0.step |
        moment.first | optimizer.state.0.exp_avg | 10 64
        moment.second | optimizer.state.0.exp_avg_sq | 10 64
        moment.first | state.1.momentum_buffer | 10 64
        moment.second | state.2.max_exp_avg_sq | 4 4
        moment.second | state.3.sum | 4 4
        moment.second | state.3.square_avg | 4 4
        moment.second | optimizer_state_dict.state.0.exp_avg_sq_row | 10
        moment.first | state.layers.0.weight.exp_avg | 10 10
        optimizer | state.0.prev | 4 4
    """,
    "others": """
        scale | backbone.layers.0.mixer.A_log | 1536 16
        vector | backbone.layers.0.mixer.D | 1536
        conv | backbone.layers.0.mixer.conv1d.weight | 1536 1 4
        matrix | backbone.layers.0.mixer.in_proj.weight | 3072 768
        matrix | backbone.layers.0.mixer.out_proj.weight | 768 1536
        bias | backbone.layers.0.mixer.dt_proj.bias | 1536
        conv | features.1.0.block.0.weight | 32 1 7 7
        position | layers.0.blocks.0.attn.relative_position_bias_table | 169 3
        mask | layers.0.blocks.1.attn_mask | 64 49 49
        matrix | layers.0.downsample.reduction.weight | 192 384
        position | image_encoder.blocks.0.attn.rel_pos_h | 27 64
        mlp | blocks.0.ffn.key.weight | 4096 1024
        attention.k | blocks.0.att.key.weight | 1024 1024
        vector | blocks.0.att.time_decay | 1024
        embedding | emb.weight | 50277 1024
        attention.q | mid_block.attentions.0.transformer_blocks.0.attn1.to_q.weight | 320 320
        attention.o | mid_block.attentions.0.transformer_blocks.0.attn1.to_out.0.weight | 320 320
        mlp | mid_block.attentions.0.transformer_blocks.0.ff.net.0.proj.weight | 2560 320
        conv | mid_block.attentions.0.proj_in.weight | 320 320 1 1
        matrix | down_blocks.0.resnets.0.time_emb_proj.weight | 320 1280
        mlp | time_embedding.linear_1.weight | 1280 320
        matrix | transformer_blocks.0.adaLN_modulation.1.weight | 768 128
        matrix | transformer_blocks.0.norm1.linear.weight | 768 128
        head | class_embed.weight | 92 256
        head | bbox_embed.layers.0.weight | 256 256
        embedding | query_embed.weight | 100 256
        attention.o | transformer.encoder.layers.0.self_attn.out_proj.weight | 256 256
        position | deberta.encoder.rel_embeddings.weight | 512 768
        attention.q | deberta.encoder.layer.0.attention.self.query_proj.weight | 768 768
        attention.qkv | deberta.encoder.layer.0.attention.self.in_proj.weight | 2304 768
        attention | deberta.encoder.layer.0.attention.self.pos_proj.weight | 768 768
        conv | wav2vec2.encoder.pos_conv_embed.conv.weight_v | 768 48 128
        conv | wav2vec2.feature_extractor.conv_layers.0.conv.weight | 512 1 10
        mlp | wav2vec2.encoder.layers.0.feed_forward.intermediate_dense.weight | 3072 768
        attention.q | base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight | 8 4096
        mlp | base_model.model.model.layers.0.mlp.up_proj.lora_B.weight | 8 4096
        attention.q | params/encoder/layer_0/attention/query/kernel | 768 12 64
        matrix | params/Dense_0/kernel | 784 128
        norm | params/BatchNorm_0/scale | 32
        matrix | codebook | 8192 256
        attention.q | transformer.layer.0.rel_attn.q | 1024 16 64
        position | transformer.layer.0.rel_attn.r_w_bias | 16 64
        mlp | transformer.layer.0.ff.layer_1.weight | 4096 1024
        norm | features.norm0.weight | 64
        conv | _conv_stem.weight | 32 3 3 3
        conv | _blocks.0._se_reduce.weight | 8 32 1 1
        norm | _bn0.weight | 32
        head | _fc.weight | 1000 1280
        conv | conv_head.weight | 1280 320 1 1
        attention.q | attnpool.q_proj.weight | 2048 2048
        conv | decode_head.classifier.weight | 150 256 1 1
        head | value_head.summary.weight | 1 768
        matrix | critic.value.weight | 1 64
        attention.k | blocks.0.attn.key.weight | 32 32
        attention | blocks.0.attn_output.weight | 32 32
        head | roi_heads.box_head.fc6.weight | 1024 12544
        head | roi_heads.box_predictor.cls_score.weight | 91 1024
    """,
}
