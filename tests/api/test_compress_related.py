"""Folders of many models, each file coded against its nearest relative in the folder."""

import filecmp
import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from checkpoint_files import write_safetensors

import tensorcomp
from tensorcomp import Budget, compress, decompress, inspect, verify
from tensorcomp.api import compress_related
from tensorcomp.errors import MissingBaseError, PlanError, TensorcompError
from tensorcomp.numpy import load_file
from tensorcomp.reports.save import save_report


def model(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = {"embed.weight": (100, 32), "up.weight": (64, 32), "down.weight": (32, 64)}
    tensors = {n: random.standard_normal(s).astype("f4") / 8 for n, s in shapes.items()}
    return {**tensors, "norm.weight": np.ones(32, "f4")}


def tuned(tensors: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        n: a + (1e-4 * random.standard_normal(a.shape)).astype("f4") if n != "embed.weight" else a
        for n, a in tensors.items()
    }


def narrow(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: a.astype(ml_dtypes.bfloat16) for n, a in tensors.items()}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    base, other = model(0), model(1)
    write_safetensors(folder / "base/model.safetensors", base)
    for seed in (2, 3, 4):
        write_safetensors(folder / f"tuned-{seed}/model.safetensors", tuned(base, seed))
    write_safetensors(folder / "copy/model.safetensors", base)
    write_safetensors(folder / "base/half.safetensors", narrow(base))
    write_safetensors(folder / "other/model.safetensors", other)
    renamed = {f"net.{n}": a for n, a in tuned(other, 5).items()}
    np.savez(folder / "other/tuned.npz", **renamed)
    (folder / "base/config.json").write_text("{}")
    return folder


def same(one: Path, other: Path) -> bool:
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    equal, _, _ = filecmp.cmpfiles(one, other, files, shallow=False)
    return sorted(map(Path, equal)) == files


def bases(folder: Path) -> dict[str, tuple[str, ...]]:
    return {one.file.removesuffix(".tc.safetensors"): one.bases for one in inspect(folder).files}


def test_relatives_are_coded_against_each_other_and_restored(models, tmp_path):
    result = compress(models, tmp_path / "store", dedup=True)
    alone = compress(models, tmp_path / "alone")
    assert result.output_bytes < 0.75 * alone.output_bytes
    found = bases(result.path)
    root = {name for name in found if not found[name]}
    assert root in ({"base/model", "other/model"}, {"copy/model", "other/model"})
    (hub,) = (f"{name}.tc.safetensors" for name in root - {"other/model"})
    for name in ("tuned-2/model", "tuned-3/model", "tuned-4/model"):
        assert found[name] == (hub,)
    assert found["other/tuned.npz"] == ("other/model.tc.safetensors",)
    sizes = {one.file: one.output_bytes for one in result.summary.files}
    assert sizes["base/half.tc.safetensors"] < 3000
    assert min(sizes["base/model.tc.safetensors"], sizes["copy/model.tc.safetensors"]) < 3000
    assert not [check for check in verify(result.path, models) if check.error]
    assert same(models, decompress(result.path, tmp_path / "restored"))
    assert same(models / "tuned-2", decompress_one(result.path / "tuned-2", tmp_path / "one"))


def decompress_one(folder: Path, out: Path) -> Path:
    out.mkdir()
    decompress(folder / "model.tc.safetensors", out / "model.safetensors")
    return out


def test_folders_of_shards_are_models_too(tmp_path):
    base, folder = model(0), tmp_path / "models"
    names = {n: f"model-0000{1 + (n < 'n')}-of-00002.safetensors" for n in base}
    for number, tensors in enumerate([base, tuned(base, 1), tuned(base, 2)]):
        for shard in set(names.values()):
            own = {n: a for n, a in tensors.items() if names[n] == shard}
            write_safetensors(folder / str(number) / shard, own)
        index = json.dumps({"weight_map": names})
        (folder / str(number) / "model.safetensors.index.json").write_text(index)
    write_safetensors(folder / "whole.safetensors", tuned(base, 3))
    store = compress(folder, dedup=True, keep_names=True)
    assert sum(not one.bases for one in store.summary.files) == 1
    assert same(folder, decompress(store.path, tmp_path / "restored"))
    with tensorcomp.safe_open(store.path / "1" / names["up.weight"]) as file:
        assert file.get_tensor("up.weight").tobytes() == tuned(base, 1)["up.weight"].tobytes()


def test_a_lost_base_is_named_with_the_files_that_need_it(models, tmp_path):
    store = compress(models, tmp_path / "store", dedup=True).path
    found = bases(store)
    hub = found["tuned-2/model"][0]
    (store / hub).unlink()
    for copy in ("copy", "base"):  # which is found in its own folder, or is no other base
        (store / copy / "model.tc.safetensors").unlink(missing_ok=True)
    failed = {check.file.relative_to(store).parts[0] for check in verify(store) if check.error}
    assert failed == {"tuned-2", "tuned-3", "tuned-4", "base"}
    with pytest.raises(MissingBaseError, match=r"model\.tc\.safetensors.*digest.*bases=…"):
        decompress(store, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    source = models / "base/model.safetensors"
    assert not [check for check in verify(store, bases=source) if check.error]


def test_a_damaged_base_is_named_with_the_files_that_need_it(models, tmp_path):
    store = compress(models, tmp_path / "store", dedup=True).path
    other = store / "other/model.tc.safetensors"
    data = bytearray(other.read_bytes())
    data[len(data) // 2] ^= 1
    other.write_bytes(data)
    failed = {check.file.relative_to(store).as_posix() for check in verify(store) if check.error}
    assert failed == {"other/model.tc.safetensors", "other/tuned.npz.tc.safetensors"}


def test_a_run_that_fails_leaves_nothing(models, tmp_path, monkeypatch):
    done = []

    def fails(*given):
        if len(done) == 3:
            raise TensorcompError("killed")
        done.append(given)
        return real(*given)

    real = compress_related.compress_source
    monkeypatch.setattr(compress_related, "compress_source", fails)
    with pytest.raises(TensorcompError, match="killed"):
        compress(models, dedup=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models"]


@pytest.mark.parametrize(
    "asked",
    [
        {"replace": True},
        {"part": "0/2"},
        {"executor": ThreadPoolExecutor(1)},
        {"budget": Budget(min_snr=30)},
        {"base": "base.safetensors"},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_it_does_not_go_with_is_refused(models, asked):
    with pytest.raises(PlanError, match=r"^expected .*, got .*; (leave|give)"):
        compress(models, dedup=True, **asked)
    assert not models.with_name("models.tc").exists()


def test_a_single_file_is_refused(models):
    with pytest.raises(PlanError, match="expected a folder"):
        compress(models / "base/model.safetensors", dedup=True)


def test_an_output_is_replaced_only_by_force(models):
    compress(models, dedup=True)
    with pytest.raises(TensorcompError, match="exists"):
        compress(models, dedup=True)
    first = {p: p.read_bytes() for p in models.with_name("models.tc").rglob("*.safetensors")}
    compress(models, dedup=True, force=True, threads=1)
    assert first == {path: path.read_bytes() for path in first}


def test_the_verb_says_what_was_saved(models, tmp_path):
    command = [sys.executable, "-m", "tensorcomp", "compress", str(models), "--dedup", "--json"]
    page = tmp_path / "page.html"
    done = subprocess.run(
        [*command, "--report", str(page)], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert len(found["files"]) == 8
    assert sum(one["output_bytes"] for one in found["files"]) == found["output_bytes"]
    assert "Bytes by file" in page.read_text()
    result = inspect(models.with_name("models.tc"))
    assert "6 of 8 files against others" in str(result)
    save_report(result, tmp_path / "card.md")


@pytest.mark.slow
def test_a_store_of_thousands_of_files(tmp_path):
    base = model(0)
    for number in range(2000):
        path = tmp_path / f"models/{number % 50}/{number}.safetensors"
        write_safetensors(path, tuned(base, number) if number != 1234 else base)
    result = tensorcomp.compress(tmp_path / "models", dedup=True)
    assert sum(not one.bases for one in result.summary.files) == 1
    assert same(tmp_path / "models", decompress(result.path, tmp_path / "restored"))


@pytest.mark.slow
def test_real_relatives_find_their_bases(tmp_path):
    base = load_file(Path(__file__).parents[2] / "examples/tiny_lm/model.safetensors")
    random = np.random.default_rng(0)

    def changed(size: float, rank: int = 0) -> dict[str, np.ndarray]:
        found = {}
        for name, array in base.items():
            wide = array.astype("f4")
            rows, columns = wide.shape if wide.ndim == 2 else (1, wide.size)
            change = random.standard_normal((rows, columns))
            if rank:
                thin = random.standard_normal((rows, rank)), random.standard_normal((rank, columns))
                change = thin[0] @ thin[1] / rank**0.5 * ("embedding" not in name)
            found[name] = (wide + size * wide.std() * change.reshape(wide.shape)).astype(
                array.dtype
            )
        return found

    tune = changed(0.01)
    folder = tmp_path / "models"
    write_safetensors(folder / "base/model.safetensors", base)
    write_safetensors(folder / "tuned/model.safetensors", tune)
    write_safetensors(folder / "merged/model.safetensors", changed(0.3, rank=8))
    write_safetensors(folder / "wide.safetensors", {n: a.astype("f4") for n, a in tune.items()})
    store = compress(folder, dedup=True)
    ratios = {one.file.partition("/")[0]: one for one in store.summary.files}
    assert ratios["merged"].bases == ("base/model.tc.safetensors",)
    assert ratios["merged"].output_bytes < 0.25 * ratios["merged"].input_bytes
    assert sum(not one.bases for one in store.summary.files) == 1
    assert same(folder, decompress(store.path, tmp_path / "restored"))
