"""transformers loads compressed folders, by each of the two ways, and refuses what is amiss."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from host_models import MODELS, assert_same, minilm, outputs, saved
from transformers import AutoModel, AutoModelForCausalLM, BertModel, GPT2LMHeadModel

import tensorcomp
from tensorcomp import hub
from tensorcomp.errors import CheckpointError, InputTypeError, MissingBaseError, OptionError

INDEX = "model.safetensors.index.json"


def by_variant(model_class: Any, plain: Path, **keywords: Any) -> Any:
    packed = tensorcomp.compress(plain, plain.with_name("by_variant"), force=True).path
    with hub.enabled():
        return model_class.from_pretrained(packed, variant="tc", **keywords)


def by_kept_names(model_class: Any, plain: Path, **keywords: Any) -> Any:
    out = plain.with_name("kept")
    packed = tensorcomp.compress(plain, out, keep_names=True, force=True).path
    with hub.enabled():
        return model_class.from_pretrained(packed, **keywords)


def without_a_patch(model_class: Any, plain: Path, **keywords: Any) -> Any:
    packed = tensorcomp.compress(plain, plain.with_name("unpatched"), force=True).path
    return hub.from_pretrained(model_class, packed, **keywords)


def kept_without_a_patch(model_class: Any, plain: Path, **keywords: Any) -> Any:
    out = plain.with_name("kept_unpatched")
    packed = tensorcomp.compress(plain, out, keep_names=True, force=True).path
    return hub.from_pretrained(model_class, str(packed), **keywords)


WAYS = [by_variant, by_kept_names, without_a_patch, kept_without_a_patch]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@pytest.fixture(params=sorted(MODELS))
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return saved(request.param, tmp_path / "model")


@each_way
def test_outputs_are_equal_bit_for_bit(plain, way):
    assert_same(way(AutoModel, plain), AutoModel.from_pretrained(plain))


def test_models_that_are_coded_against_a_base(plain, tmp_path):
    tuned = AutoModel.from_pretrained(plain)
    with torch.no_grad():
        for parameter in tuned.parameters():
            parameter.mul_(1 + 1e-3 * torch.randn_like(parameter))
    tuned.save_pretrained(tmp_path / "tuned")
    packed = tensorcomp.compress(tmp_path / "tuned", tmp_path / "packed", base=plain).path
    assert tensorcomp.inspect(packed).bases
    assert_same(hub.from_pretrained(AutoModel, packed, bases=plain), tuned)
    with pytest.raises(MissingBaseError, match="against"):
        hub.from_pretrained(AutoModel, packed)


@each_way
def test_real_weights(tmp_path, way):
    plain = tmp_path / "minilm"
    plain.symlink_to(minilm())
    assert_same(way(AutoModel, plain), AutoModel.from_pretrained(plain))


@each_way
@pytest.mark.parametrize("keywords", [{"dtype": torch.bfloat16}, {"dtype": "auto"}], ids=str)
def test_dtypes(plain, way, keywords):
    is_bert = '"bert"' in (plain / "config.json").read_text()
    model_class = AutoModel if is_bert else AutoModelForCausalLM
    found = way(model_class, plain, **keywords)
    assert_same(found, model_class.from_pretrained(plain, **keywords))


@each_way
def test_what_else_a_folder_says_of_a_model(tmp_path, way):
    plain = saved("gpt2", tmp_path / "model")
    path = plain / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_new_tokens": 5}))
    for model_class in (AutoModelForCausalLM, GPT2LMHeadModel):
        found, info = way(model_class, plain, output_loading_info=True, resid_pdrop=0.5)
        wanted = model_class.from_pretrained(plain, resid_pdrop=0.5)
        assert not info["missing_keys"]
        assert type(found) is type(wanted)
        assert found.generation_config.to_dict() == wanted.generation_config.to_dict()
        assert found.generation_config.max_new_tokens == 5
        assert found.config.resid_pdrop == 0.5
        assert Path(found.name_or_path).parent == plain.parent
        assert not found.training
        assert_same(found, wanted)


@each_way
def test_a_loaded_model_saves_ordinary_files(tmp_path, way):
    plain = saved("bert", tmp_path / "model")
    way(BertModel, plain).save_pretrained(tmp_path / "again")
    assert_same(BertModel.from_pretrained(tmp_path / "again"), BertModel.from_pretrained(plain))


def test_weights_on_disk(tmp_path):
    plain = saved("bert", tmp_path / "model")
    packed = tensorcomp.compress(plain).path
    device_map = {"embeddings": "cpu", "encoder": "disk", "pooler": "cpu"}
    with pytest.raises(OptionError, match=r"no part .* on 'disk', .* tensorcomp.hub.enable"):
        hub.from_pretrained(AutoModel, packed, device_map=device_map, offload_folder=tmp_path)
    hub.enable()
    model = AutoModel.from_pretrained(packed, variant="tc", device_map=device_map)
    assert {parameter.device.type for parameter in model.encoder.parameters()} == {"meta"}
    assert torch.equal(outputs(model), outputs(AutoModel.from_pretrained(plain)))


@each_way
@pytest.mark.parametrize("name", ["llama", "bert"])
def test_a_missing_shard(tmp_path, way, name, monkeypatch):
    plain = saved(name, tmp_path / "model")
    compress = tensorcomp.compress

    def without_the_last(*arguments: Any, **keywords: Any) -> Any:
        done = compress(*arguments, **keywords)
        sorted(done.path.glob("*.safetensors"))[-1].unlink()
        return done

    monkeypatch.setattr(tensorcomp, "compress", without_the_last)
    fault = "shards are missing" if name == "llama" else "holds no compressed weights"
    hosts = pytest.raises((OSError, CheckpointError), match=r"model-|no file named")
    ours = pytest.raises(CheckpointError, match=fault)
    with ours if "patch" in way.__name__ else hosts:
        way(AutoModel, plain)


def test_an_index_that_names_absent_files(tmp_path):
    packed = tensorcomp.compress(saved("llama", tmp_path / "model")).path
    path = packed / "model.safetensors.index.tc.json"
    index = json.loads(path.read_text())
    index["weight_map"]["lm_head.weight"] = "another.tc.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"1 of \d+ shards are missing: 'another.tc.safete"):
        hub.from_pretrained(AutoModel, packed)
    with hub.enabled(), pytest.raises(OSError, match=r"another.tc.safetensors"):
        AutoModel.from_pretrained(packed, variant="tc")


def test_folders_without_compressed_weights(tmp_path):
    plain = saved("bert", tmp_path / "model")
    for folder in (plain, tmp_path):
        with pytest.raises(CheckpointError, match="holds no compressed weights"):
            hub.from_pretrained(AutoModel, folder)
    with pytest.raises(CheckpointError, match="is no folder of a model"):
        hub.from_pretrained(AutoModel, tmp_path / "absent")
    with hub.enabled(), pytest.raises(OSError, match=r"no file named model.tc.safetensors"):
        AutoModel.from_pretrained(plain, variant="tc")
    packed = tensorcomp.compress(plain).path
    with pytest.raises(CheckpointError, match=r"neither model.fp16.tc.safetensors nor"):
        hub.from_pretrained(AutoModel, packed, variant="fp16")


@each_way
def test_variants_of_variants(tmp_path, way):
    plain = tmp_path / "model"
    BertModel.from_pretrained(saved("bert", plain)).half().save_pretrained(plain, variant="fp16")
    (plain / "model.safetensors").unlink()
    wanted = AutoModel.from_pretrained(plain, variant="fp16")
    if way is by_variant:
        packed = tensorcomp.compress(plain).path
        with hub.enabled():
            assert_same(AutoModel.from_pretrained(packed, variant="fp16.tc"), wanted)
    else:
        assert_same(way(AutoModel, plain, variant="fp16"), wanted)


def test_classes_of_other_hosts_are_refused(tmp_path):
    packed = tensorcomp.compress(saved("bert", tmp_path / "model")).path
    with pytest.raises(InputTypeError, match=r"expected a class of transformers.*hub.enabled"):
        hub.from_pretrained(torch.nn.Linear, packed)


def test_damage_is_told_with_its_file(tmp_path):
    packed = tensorcomp.compress(saved("bert", tmp_path / "model")).path / "model.tc.safetensors"
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 1
    packed.write_bytes(data)
    with pytest.raises(Exception, match=r"model.tc.safetensors: .*damaged"):
        hub.from_pretrained(AutoModel, packed.parent)


def test_a_lossy_model_is_saved_and_loaded(tmp_path):
    model = AutoModel.from_pretrained(saved("bert", tmp_path / "model"))
    target = tmp_path / "small"
    budget = tensorcomp.Budget(min_snr=30)
    done = hub.save_pretrained(model, target, profile="transformer", budget=budget)
    assert done.ratio > 2.5
    found = hub.from_pretrained(BertModel, target)
    error = (outputs(found) - outputs(model)).norm() / outputs(model).norm()
    assert 0 < error < 0.1
    shards = {"save_options": {"max_shard_size": "100KB"}}
    hub.save_pretrained(model, tmp_path / "shards", **shards)
    assert_same(hub.from_pretrained(BertModel, tmp_path / "shards"), model)


def test_without_the_hook_blobs_do_not_become_a_model(tmp_path):
    packed = tensorcomp.compress(saved("bert", tmp_path / "model")).path
    with pytest.raises(RuntimeError, match="size"), contextlib.redirect_stdout(None):
        AutoModel.from_pretrained(packed, variant="tc")
