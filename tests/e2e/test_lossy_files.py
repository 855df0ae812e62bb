"""Lossy files and folders on disk: verified, restored, planned, damaged."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint_files import errors_of, small_model, write_safetensors
from lossy_cases import UNIFORM, check, weights
from safetensors import safe_open as open_plain
from safetensors.numpy import load_file as load_plain

import tensorcomp
from tensorcomp.api.load import safe_open
from tensorcomp.api.plan import plan as make_plan
from tensorcomp.errors import (
    FormatError,
    InfeasibleBudgetError,
    PlanError,
    TensorcompError,
    VerificationError,
)
from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.plan import plan_from_json

BUDGETS = (Budget(min_snr=30), Budget(max_abs_error=0.005), Budget(bits_per_weight=5))


def model(seed: int = 0) -> dict[str, np.ndarray]:
    """Return a little model of which some tensors are large enough to be lossy."""
    half = weights(90, 100, seed=seed + 2, dtype=ml_dtypes.bfloat16)
    signs = np.where(weights(80, 90, seed=seed) < 0, -0.0, 1.0)
    return {
        "layers.0.mlp.up_proj.weight": weights(300, 100, seed=seed),
        "layers.0.mlp.up_proj.bias": weights(300, seed=seed + 1),
        "layers.0.self_attn.q_proj.weight": half,
        "layers.0.mlp.zeros.weight": signs.astype(np.float32),
        "norm.weight": np.ones(300, np.float32),
        "ids": np.arange(500),
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 3), np.float16),
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "model.safetensors", model(), {"format": "pt"})


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_lossy_file_is_verified_and_restored(source, tmp_path, budget):
    done = tensorcomp.compress(source, budget=budget)
    check(done.path.read_bytes(), model(), budget)
    assert errors_of(done.path, source) == []
    restored = tensorcomp.decompress(done.path, tmp_path / "again.safetensors")
    loaded = load_plain(restored)
    before = load_plain(source)
    assert list(loaded) == list(before)
    for name, array in before.items():
        assert (loaded[name].shape, loaded[name].dtype) == (array.shape, array.dtype)
        if name in ("norm.weight", "ids", "scalar", "empty", "layers.0.mlp.up_proj.bias"):
            assert loaded[name].tobytes() == array.tobytes()
    with open_plain(restored, "np") as plain, safe_open(done.path, "np") as compressed:
        assert plain.metadata() == compressed.metadata() == {"format": "pt"}
        for name in before:
            np.testing.assert_array_equal(plain.get_tensor(name), compressed.get_tensor(name))
    again = tensorcomp.compress(restored, tmp_path / "twice.tc.safetensors")
    assert errors_of(again.path, restored) == []


def test_slices_are_those_of_the_whole(source):
    done = tensorcomp.compress(source, budget=Budget(min_snr=25))
    whole = tensorcomp.load_file(done.path)
    with safe_open(done.path, "np") as file:
        for name in ("layers.0.mlp.up_proj.weight", "layers.0.self_attn.q_proj.weight"):
            part = file.get_slice(name)[7:60, ::3]
            np.testing.assert_array_equal(part, whole[name][7:60, ::3])


def test_zeros_with_a_sign_are_equal(tmp_path):
    """Nothing is lost but the sign of zeros: the error is none, the bits are others."""
    signs = np.where(weights(80, 90) < 0, -0.0, 1.0).astype(np.float32)
    path = write_safetensors(tmp_path / "x.safetensors", {"w": signs})
    done = tensorcomp.compress(path, codecs=["w=uniform(1.0)"])
    (report,) = done.files.values()
    assert report.summary().tensors[0].rel_l2 == 0
    assert errors_of(done.path, path) == []
    restored = tensorcomp.load_file(done.path)["w"]
    assert (restored == signs).all()
    assert restored.tobytes() != signs.tobytes()


def test_verification_finds_another_original(source, tmp_path):
    done = tensorcomp.compress(source, budget=Budget(min_snr=30))
    name = "layers.0.mlp.up_proj.weight"
    for change in (1e-4, 0.1):
        other = model()
        other[name] = other[name] + np.float32(change)
        path = write_safetensors(tmp_path / "other.safetensors", other, {"format": "pt"})
        (error,) = errors_of(done.path, path)
        assert name in error


@pytest.mark.parametrize("position", [0.02, 0.3, 0.6, 0.99])
def test_damage_is_an_error(source, tmp_path, position):
    done = tensorcomp.compress(source, budget=Budget(bits_per_weight=5))
    data = bytearray(done.path.read_bytes())
    data[int(position * (len(data) - 1))] ^= 0x10
    damaged = tmp_path / "damaged.tc.safetensors"
    damaged.write_bytes(data)
    with pytest.raises((FormatError, VerificationError, TensorcompError)):
        tensorcomp.decompress(damaged, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()
    damaged.write_bytes(data[: int(position * len(data))])
    with pytest.raises(TensorcompError):
        tensorcomp.load_file(damaged)


def saved_plan(path: Path, source: Path, **asked: Any) -> dict[str, Any]:
    path.write_text(make_plan(source, **asked).to_json())
    value: dict[str, Any] = json.loads(path.read_text())
    return value


@pytest.mark.parametrize("budget", [*BUDGETS, Budget(target_ratio=5)], ids=str)
def test_a_saved_plan_is_obeyed(source, tmp_path, budget):
    value = saved_plan(tmp_path / "plan.json", source, budget=budget)
    assert list(value["tensors"]) == list(model())
    done = tensorcomp.compress(source, plan=tmp_path / "plan.json")
    check(done.path.read_bytes(), model(), budget)
    (report,) = done.files.values()
    for item in report.summary().tensors:
        wanted = value["tensors"][item.name]
        if wanted["tree"] == "lossless":
            assert item.rel_l2 == 0
        else:
            assert item.tree.split("(")[0] == wanted["tree"].split("(")[0]
    most = budget.size(report.input_bytes, sum(array.size for array in model().values()))
    if most is not None:
        assert 0.97 * most <= report.output_bytes <= most


def test_predictions_are_near_what_comes(source):
    budget = Budget(min_snr=30)
    forecast = make_plan(source, budget=budget)
    done = tensorcomp.compress(source, budget=budget)
    assert forecast.output_bytes == pytest.approx(done.path.stat().st_size, rel=0.05)
    (report,) = done.files.values()
    for item in report.summary().tensors:
        if item.rel_l2:
            predicted = forecast.plan.tensors[item.name].rel_l2
            assert predicted == pytest.approx(item.rel_l2, rel=0.03)
            size = forecast.predicted_bytes(item.name)
            assert size == pytest.approx(item.stored, rel=0.05)


def test_an_edited_plan_is_obeyed(source, tmp_path):
    path = tmp_path / "plan.json"
    value = saved_plan(path, source, budget=Budget(min_snr=30))
    tensors = value["tensors"]
    tensors["layers.0.mlp.up_proj.weight"] |= {"tree": "affine(4, 50)", "bound": {}}
    tensors["layers.0.self_attn.q_proj.weight"] |= {"bound": {"max_rel_l2": 0.2}}
    tensors["layers.0.mlp.zeros.weight"]["tree"] = "lossless"
    tensors["layers.0.mlp.up_proj.bias"]["tree"] = "uniform(0.01)"  # protected, but asked for
    path.write_text(json.dumps(value))
    done = tensorcomp.compress(source, plan=path)
    (report,) = done.files.values()
    found = {item.name: item for item in report.summary().tensors}
    assert found["layers.0.mlp.up_proj.weight"].tree.startswith("affine")
    assert found["layers.0.mlp.up_proj.weight"].bound == {}
    assert found["layers.0.self_attn.q_proj.weight"].bound == {"max_rel_l2": 0.2}
    assert found["layers.0.mlp.zeros.weight"].rel_l2 == 0
    assert found["layers.0.mlp.up_proj.bias"].rel_l2 > 0
    assert errors_of(done.path, source) == []


def test_a_plan_without_steps_that_exceeds_its_size_is_refused(source, tmp_path):
    path = tmp_path / "plan.json"
    value = saved_plan(path, source, budget=Budget(bits_per_weight=5))
    for entry in value["tensors"].values():
        entry["tree"] = "lossless"
    path.write_text(json.dumps(value))
    with pytest.raises(PlanError, match=r"got .* under the plan; give a larger budget"):
        tensorcomp.compress(source, tmp_path / "out", plan=path)
    assert not (tmp_path / "out").exists()
    value["budget"] = {}
    path.write_text(json.dumps(value))
    tensorcomp.compress(source, tmp_path / "out", plan=path)


def test_a_plan_for_another_checkpoint_is_refused(source, tmp_path):
    path = tmp_path / "plan.json"
    value = saved_plan(path, source, budget=Budget(min_snr=30))
    value["tensors"]["more"] = value["tensors"].pop("norm.weight")
    path.write_text(json.dumps(value))
    with pytest.raises(PlanError, match=r"do not exist: 'more'; lacks 'norm\.weight'"):
        tensorcomp.compress(source, tmp_path / "out", plan=path)
    with pytest.raises(PlanError, match="beside a plan"):
        tensorcomp.compress(source, plan=path, budget=Budget(min_snr=3))
    with pytest.raises(PlanError, match="cannot be read"):
        tensorcomp.compress(source, plan=tmp_path / "none.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return two shards of a model, and another model whose tensors have the same names."""
    root = tmp_path / "models"
    (root / "other").mkdir(parents=True)
    tensors, other = model(), model(seed=50)
    other["layers.0.mlp.up_proj.weight"] = other["layers.0.mlp.up_proj.weight"] * np.float32(900)
    other["extra.mlp.weight"] = weights(200, 100, scale=7.0, seed=77)
    names = list(tensors)
    for number, held in ((1, names[:2]), (2, names[2:])):
        shard = root / f"model-0000{number}-of-00002.safetensors"
        write_safetensors(shard, {name: tensors[name] for name in held})
    write_safetensors(root / "other" / "model.safetensors", other)
    (root / "config.json").write_text("{}")
    return root


def decoded(path: Path) -> dict[str, dict[str, np.ndarray]]:
    return {
        file.relative_to(path).as_posix(): tensorcomp.load_file(file)
        for file in sorted(path.rglob("*.tc.safetensors"))
    }


def originals(path: Path) -> dict[str, dict[str, np.ndarray]]:
    return {
        file.relative_to(path).with_suffix(".tc.safetensors").as_posix(): load_plain(file)
        for file in sorted(path.rglob("*.safetensors"))
    }


def compressed_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.tc.safetensors"))


@pytest.mark.parametrize("planned", [False, True], ids=["at once", "by a plan"])
def test_a_size_is_for_the_whole_folder(folder, tmp_path, planned):
    sizes = [file.stat().st_size for file in folder.rglob("*.safetensors")]
    elements = sum(a.size for tensors in originals(folder).values() for a in tensors.values())
    for budget, most in (
        (Budget(bits_per_weight=6), int(6 * elements / 8)),
        (Budget(target_ratio=5), sum(sizes) // 5),
        (Budget(target_size=80_000), 80_000),
    ):
        if planned:
            saved_plan(tmp_path / "plan.json", folder, budget=budget)
            done = tensorcomp.compress(folder, plan=tmp_path / "plan.json")
        else:
            done = tensorcomp.compress(folder, budget=budget)
        used = compressed_size(done.path) / most
        assert (0.97 if planned else 0.995) <= used <= 1
        assert not errors_of(done.path, folder)
        shutil.rmtree(done.path)


def test_tensors_of_one_name_have_plans_of_their_own(folder, tmp_path):
    name = "layers.0.mlp.up_proj.weight"
    value = saved_plan(tmp_path / "plan.json", folder, budget=Budget(bits_per_weight=6))
    first = f"model-00001-of-00002.safetensors:{name}"
    second = f"other/model.safetensors:{name}"
    assert {first, second, "extra.mlp.weight"} <= set(value["tensors"])
    assert value["tensors"][first]["tree"] != value["tensors"][second]["tree"]
    value["tensors"][first]["tree"] = "affine(8)"
    (tmp_path / "plan.json").write_text(json.dumps(value))
    plan = plan_from_json(json.dumps(value), "plan")
    assert len(plan.tensors) == 2 * len(model()) + 1
    done = tensorcomp.compress(folder, plan=tmp_path / "plan.json")
    trees = {
        path.as_posix(): item.tree.split("(")[0]
        for path, report in done.files.items()
        for item in report.summary().tensors
        if item.name == name
    }
    assert trees == {
        "model-00001-of-00002.safetensors": "affine",
        "other/model.safetensors": "trellis",
    }


def test_bounds_hold_in_every_file_of_a_folder(folder):
    done = tensorcomp.compress(folder, profile=UNIFORM, budget=Budget(min_snr=32))
    before, after = originals(folder), decoded(done.path)
    assert set(before) == set(after)
    for file, tensors in before.items():
        for name, array in tensors.items():
            if array.size and array.dtype.kind != "i":
                assert measure(array, after[file][name]).rel_l2 <= 10 ** (-32 / 20)
    assert not errors_of(done.path, folder)


def test_a_rule_may_be_for_one_shard_only(folder):
    done = tensorcomp.compress(folder, codecs=["extra.*=affine(4)"])
    lossy = {
        (path.as_posix(), item.name)
        for path, report in done.files.items()
        for item in report.summary().tensors
        if item.rel_l2
    }
    assert lossy == {("other/model.safetensors", "extra.mlp.weight")}
    with pytest.raises(PlanError, match="got 'nowhere'"):
        tensorcomp.compress(folder, codecs=["extra.*=affine(4)", "nowhere=raw"], force=True)


def test_arrays_of_an_archive_too(tmp_path):
    path = tmp_path / "arrays.npz"
    arrays = {"w": weights(100, 90), "f": np.asfortranarray(weights(90, 100)), "i": np.arange(9)}
    np.savez(path, **arrays)
    done = tensorcomp.compress(path, profile="mlp", budget=Budget(min_snr=28))
    assert errors_of(done.path, path) == []
    with np.load(tensorcomp.decompress(done.path, tmp_path / "again.npz")) as back:
        for name, array in arrays.items():
            assert measure(array, back[name]).rel_l2 <= 10 ** (-28 / 20)
            assert back[name].flags.f_contiguous == array.flags.f_contiguous
        assert (back["i"] == arrays["i"]).all()


def test_an_impossible_size_leaves_nothing(folder, source, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    for path in (folder, source):
        with pytest.raises(PlanError, match="is not possible; the smallest one takes about"):
            tensorcomp.compress(path, budget=Budget(target_size=600))
    assert sorted(tmp_path.rglob("*")) == before


def test_torch_files_keep_ties_and_what_is_no_weight(tmp_path):
    torch = pytest.importorskip("torch")
    tied = torch.from_numpy(weights(200, 64))
    state = {
        "model": {
            "embed_tokens.weight": tied,
            "lm_head.weight": tied,
            "layers.0.mlp.weight": torch.from_numpy(weights(90, 80, seed=3)),
            "norm.weight": torch.ones(5000),
        },
        "optimizer": {
            "state": {
                0: {
                    "step": torch.tensor(7.0),
                    "exp_avg": torch.from_numpy(weights(90, 80, seed=4)),
                    "exp_avg_sq": torch.from_numpy(weights(90, 80, seed=5) ** 2),
                }
            },
            "param_groups": [{"lr": 1e-3, "params": [0]}],
        },
        "epoch": 3,
    }
    path = tmp_path / "training.pt"
    torch.save(state, path)
    for asked in ({"budget": Budget(min_snr=30)}, {"budget": Budget(bits_per_weight=14)}):
        done = tensorcomp.compress(path, force=True, **asked)
        assert errors_of(done.path, path) == []
        back = torch.load(
            tensorcomp.decompress(done.path, tmp_path / "back.pt", force=True), weights_only=True
        )
        assert back["epoch"] == 3
        assert back["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
        found = back["model"]
        assert found["embed_tokens.weight"].data_ptr() == found["lm_head.weight"].data_ptr()
        for name in ("embed_tokens.weight", "layers.0.mlp.weight"):
            error = (found[name] - state["model"][name]).norm() / state["model"][name].norm()
            assert 0 < error < 0.2
        assert torch.equal(found["norm.weight"], state["model"]["norm.weight"])
        moments = back["optimizer"]["state"][0]
        for name, tensor in state["optimizer"]["state"][0].items():
            assert torch.equal(moments[name], tensor)  # moments and steps are protected


def test_small_models_too(tmp_path):
    path = write_safetensors(tmp_path / "small.safetensors", small_model())
    for profile in ("transformer", "cnn", "mlp", "speed", "memory"):
        done = tensorcomp.compress(path, profile=profile, budget=Budget(min_snr=30), force=True)
        check(done.path.read_bytes(), small_model(), Budget(min_snr=30))
        assert errors_of(done.path, path) == []


def test_an_impossible_size_says_what_is_kept_lossless(tmp_path):
    tensors = {
        "layers.0.mlp.up_proj.weight": weights(256, 256),
        "state.0.exp_avg": weights(256, 256, seed=1),
        "state.0.exp_avg_sq": weights(256, 256, seed=2) ** 2,
    }
    path = write_safetensors(tmp_path / "x.safetensors", tensors)
    for limit in ({"bits_per_weight": 4}, {"target_ratio": 8}, {"target_size": 100_000}):
        budget = Budget(**limit)
        with pytest.raises(
            InfeasibleBudgetError, match=r"role moment, [\d,]+ bytes kept lossless: let"
        ) as caught:
            tensorcomp.compress(path, budget=budget, force=True)
        assert caught.value.least_bytes > caught.value.requested_bytes
        hint = re.search(r"codecs='([^']*)' and profile='([^']*)'", str(caught.value))
        assert hint is not None
        found = tensorcomp.compress(
            path, profile=hint[2], budget=budget, codecs=[hint[1]], force=True
        )
        assert found.path.stat().st_size <= caught.value.requested_bytes
