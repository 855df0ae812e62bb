"""The profile of training states: every bit is kept, moments get most effort."""

import numpy as np
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp import CompressOptions
from tensorcomp.container.reader import CompressedFile
from tensorcomp.planning.plan import plan_from_json


def state():
    rng = np.random.default_rng(0)
    sizes = [np.exp2(2 * rng.normal(size=n)) for n in (96, 128)]
    weight, noise = (rng.normal(size=(96, 128)).astype(np.float32) for _ in range(2))
    second = (np.outer(*sizes) * np.exp2(0.5 * noise) * 1e-8).astype(np.float32)
    first = (noise * np.sqrt(second)).astype(np.float32)
    return {"l.weight": weight, "exp_avg.l.weight": first, "exp_avg_sq.l.weight": second}


def test_moments_get_most_effort_and_nothing_is_lost(tmp_path):
    source = tmp_path / "state.safetensors"
    save_file(state(), source)
    sizes = {}
    for profile in (None, "training"):
        done = tensorcomp.compress(source, tmp_path / f"{profile}.tc.safetensors", profile=profile)
        restored = tensorcomp.decompress(done.path, tmp_path / f"{profile}.safetensors")
        assert restored.read_bytes() == source.read_bytes()
        with CompressedFile(done.path) as file:
            sizes[profile] = {info.name: file.blob_bytes(info.name) for info in file.tensors}
    assert sizes["training"]["l.weight"] == sizes[None]["l.weight"]
    assert sizes["training"]["exp_avg_sq.l.weight"] < 0.97 * sizes[None]["exp_avg_sq.l.weight"]


def test_a_plan_keeps_the_effort_of_moments(tmp_path):
    source = tmp_path / "state.safetensors"
    save_file(state(), source)
    found = tensorcomp.plan(source, profile="training")
    (tmp_path / "plan.json").write_text(found.to_json())
    read = plan_from_json(found.to_json(), "here")
    assert [read.tensors[name].effort for name in state()] == ["", "max", "max"]
    done = tensorcomp.compress(source, tmp_path / "a", profile="training")
    again = tensorcomp.compress(source, tmp_path / "b", plan=tmp_path / "plan.json")
    assert again.output_bytes == done.output_bytes


def test_moments_lose_something_by_name_only():
    options = CompressOptions(profile="training", codecs="moment.first=uniform(1e-3)")
    assert not options.planner().is_lossless
