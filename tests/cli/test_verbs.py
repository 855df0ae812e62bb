"""What each verb does when all is well: its files, its text, its JSON object."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tensorcomp.container import reader

KEYS = {"input_bytes", "output_bytes", "ratio", "bits_per_weight", "seconds", "tensors"}
TENSOR_KEYS = {
    *("name", "shape", "dtype", "role", "role_why", "codec", "bytes", "bits_per_weight"),
    *("rel_l2", "snr_db", "max_abs_error"),
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_figures(value: dict[str, Any], weights: int) -> None:
    assert value["ratio"] == value["input_bytes"] / value["output_bytes"]
    assert value["bits_per_weight"] == 8 * value["output_bytes"] / weights
    assert value["seconds"] >= 0
    for tensor in value["tensors"]:
        assert (tensor["rel_l2"], tensor["snr_db"], tensor["max_abs_error"]) == (0, None, 0)
        elements = math.prod(tensor["shape"])
        assert tensor["bits_per_weight"] == 8 * tensor["bytes"] / elements


def test_compress_then_decompress_restores_every_byte(call, model, tmp_path):
    done = call("compress", model)
    written = tmp_path / "model.tc.safetensors"
    assert done.status == 0
    assert done.stderr == ""
    restored = tmp_path / "restored.safetensors"
    back = call("decompress", written, "-o", restored)
    assert (back.status, back.stderr) == (0, "")
    assert len(back.stdout.splitlines()) == 1
    assert sha256(restored) == sha256(model)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.safetensors",
        "model.tc.safetensors",
        "restored.safetensors",
    ]


def test_compress_ends_with_sizes_ratio_time_and_costliest_tensors(call, model):
    lines = call("compress", model).stdout.splitlines()
    assert "6 tensors" in lines[1]
    assert "ratio" in lines[1]
    assert "bits per weight" in lines[1]
    head = "Tensors that cost most Shape Type Bytes Share Bits Ratio"
    assert lines[3].split() == head.split()
    assert lines[4].startswith("encoder.layer.0.attention.self.query.weight")
    assert "header" in lines[-1]


@pytest.mark.parametrize("effort", ["fast", "balanced", "max"])
def test_every_effort_and_thread_count_restores(call, model, tmp_path, effort):
    out = tmp_path / "out.tc.safetensors"
    arguments = ("compress", model, "-o", out, "--effort", effort, "--threads")
    assert call(*arguments, 1).status == 0
    one = out.read_bytes()
    assert call(*arguments, 3, "--force").status == 0
    assert out.read_bytes() == one
    assert call("verify", out, "--against", model, "--threads", 2).status == 0


def test_compress_json_is_exactly_the_documented_object(call, model, tensors):
    done = call.ok("compress", model, "--json")
    value = done.json
    assert set(value) == KEYS
    assert value["input_bytes"] == model.stat().st_size
    assert value["output_bytes"] == model.with_name("model.tc.safetensors").stat().st_size
    check_figures(value, sum(array.size for array in tensors.values()))
    assert {tensor["name"] for tensor in value["tensors"]} == set(tensors)
    for tensor in value["tensors"]:
        assert set(tensor) == TENSOR_KEYS
        assert tensor["shape"] == list(tensors[tensor["name"]].shape)
    by_name = {tensor["name"]: tensor for tensor in value["tensors"]}
    assert by_name["position_ids"]["dtype"] == "I64"
    assert by_name["position_ids"]["role"] == "integer"
    assert isinstance(by_name["position_ids"]["codec"], str)


def test_a_duplicate_costs_nothing_and_says_whose_data_it_has(call, model):
    by_name = call("compress", model, "--json").tensors
    duplicate = by_name["lm_head.weight"]
    assert duplicate["bytes"] == 0
    assert duplicate["codec"] == "same as encoder.layer.0.attention.self.query.weight"


@pytest.mark.parametrize("verb", ["decompress", "inspect", "verify"])
def test_every_verb_prints_the_same_figures_as_json(call, model, tmp_path, verb):
    wanted = call("compress", model, "--json").json
    written = tmp_path / "model.tc.safetensors"
    more = ["-o", tmp_path / "back.safetensors"] if verb == "decompress" else []
    done = call.ok(verb, written, "--json", *more)
    value = done.json
    value["seconds"] = wanted["seconds"]
    assert {key: value[key] for key in wanted} == wanted
    assert set(value) - set(wanted) == ({"sound", "errors"} if verb == "verify" else set())


def test_inspect_of_an_uncompressed_file_has_no_trees(call, model):
    value = call("inspect", model, "--json").json
    assert set(value) == KEYS
    assert value["ratio"] == 1
    assert {tensor["codec"] for tensor in value["tensors"]} == {None}
    done = call("inspect", model)
    assert "not compressed" in done.stdout
    assert done.stdout.splitlines()[1].endswith("  -     integer: type I64")


def test_inspect_prints_one_line_a_tensor_into_a_pipe(call, compressed, tensors):
    lines = call("inspect", compressed).stdout.splitlines()
    assert lines[0].split() == [
        "Tensor",
        "Shape",
        "Type",
        "Role",
        "Bytes",
        "Bits",
        "Ratio",
        "Tree",
        "Why",
    ]
    assert {line.split()[0] for line in lines[1 : 1 + len(tensors)]} == set(tensors)
    assert lines[-1].startswith(f"{compressed}: 6 tensors")


def test_folders_are_compressed_inspected_verified_and_restored(call, folder, tmp_path):
    value = call("compress", folder, "--json").json
    assert {tensor["file"] for tensor in value["tensors"]} == {
        "model.tc.safetensors",
        "text/model.tc.safetensors",
    }
    assert all(set(tensor) == TENSOR_KEYS | {"file"} for tensor in value["tensors"])
    sizes = [path.stat().st_size for path in folder.rglob("*.safetensors")]
    assert value["input_bytes"] == sum(sizes)
    written = tmp_path / "folder.tc"
    assert call("inspect", written, "--json").json["tensors"] == value["tensors"]
    assert call("inspect", folder).stdout.splitlines()[0].startswith("File")
    assert call("verify", written, "--against", folder).status == 0
    back = tmp_path / "back"
    assert call("decompress", written, "-o", back).status == 0
    for path in folder.rglob("*"):
        if path.is_file():
            assert sha256(back / path.relative_to(folder)) == sha256(path)


def test_a_torch_file_with_tied_weights_shows_both_names(call, tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.arange(600, dtype=torch.float32).reshape(20, 30)
    path = tmp_path / "model.pt"
    torch.save({"embed.weight": weight, "lm_head.weight": weight.detach()}, path)
    value = call("compress", path, "--json").json
    assert value["bits_per_weight"] == 8 * value["output_bytes"] / weight.numel()
    by_name = {tensor["name"]: tensor for tensor in value["tensors"]}
    assert by_name["lm_head.weight"]["codec"] == "same as embed.weight"
    assert by_name["lm_head.weight"]["bytes"] == 0
    back = tmp_path / "back.pt"
    assert call("decompress", tmp_path / "model.pt.tc.safetensors", "-o", back).status == 0
    loaded = torch.load(back, weights_only=True)
    assert loaded["embed.weight"].data_ptr() == loaded["lm_head.weight"].data_ptr()
    assert torch.equal(loaded["embed.weight"], weight)


def test_a_hostile_name_cannot_reach_the_terminal(call, tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "model.safetensors"
    save_file({"a\x1b[31m\nb": np.zeros(3, np.float32)}, path)
    for verb in ("inspect", "compress"):
        text = call(verb, path).stdout
        assert "\x1b" not in text
        assert "a\\x1b[31m\\nb" in text


def test_compress_says_what_it_takes_to_restore_a_file_that_shrank_beyond_all_measure(
    call, model, monkeypatch
):
    monkeypatch.setattr(reader, "default_max_bytes", lambda nbytes: nbytes)
    done = call("compress", model)
    compressed = model.with_name("model.tc.safetensors")
    assert done.status == 0
    *_, size = done.line.split()
    before = model.read_bytes()
    model.unlink()
    call.refused("max-bytes", "decompress", compressed)
    assert call("decompress", compressed, "--max-bytes", size).status == 0
    assert model.read_bytes() == before


def test_a_source_with_a_metadata_key_of_the_manifests_name(call, tmp_path):
    source, restored = tmp_path / "own.safetensors", tmp_path / "restored.safetensors"
    weight = np.arange(6, dtype=np.float32)
    save_file({"w": weight}, source, {"tensorcomp": "made with tensorcomp 0.1"})
    assert call("compress", source).status == 0
    assert call("decompress", tmp_path / "own.tc.safetensors", "-o", restored).status == 0
    assert restored.read_bytes() == source.read_bytes()
    assert call("compare", source, restored).status == 0
    assert call("compress", tmp_path / "own.tc.safetensors").status == 2
