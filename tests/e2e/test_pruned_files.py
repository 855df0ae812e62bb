"""Pruned checkpoints on disk: exact, the same on all threads, verified, restored."""

import re
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import errors_of, write_safetensors
from lossy_cases import weights
from pruned_cases import DOWN, HALF, QUERY, SELECTED, UP, dropped, model
from safetensors import safe_open as open_plain

import tensorcomp
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import PruningError
from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.budgets import Budget
from tensorcomp.pruning import Pruning, Statistics, parse_granularity


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "model.safetensors", model(), {"format": "pt", "b": "c"})


@pytest.mark.parametrize("effort", ["fast", "balanced", "max"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.97])
def test_exactly_the_lowest_are_gone_and_every_other_bit_is_kept(
    source, tmp_path, effort, sparsity
):
    tensors = model()
    asked = Pruning("magnitude", sparsity)
    done = tensorcomp.compress(source, prune=asked, effort=effort)
    assert errors_of(done.path, source) == errors_of(done.path) == []
    loaded = tensorcomp.load_file(done.path)
    masks = dropped(tensors, sparsity)
    for name, array in tensors.items():
        zeros = masks.get(name, np.zeros(array.shape, np.bool_))
        wanted = np.where(zeros, np.zeros(1, array.dtype), array)
        assert loaded[name].tobytes() == wanted.tobytes(), name
    (report,) = done.files.values()
    records = {item.name: item for item in report.summary().tensors}
    for name, array in tensors.items():
        record, errors = records[name], measure(array, loaded[name])
        assert record.rel_l2 == pytest.approx(errors.rel_l2, rel=6e-6)
        assert record.max_abs_error == pytest.approx(errors.max_abs, rel=6e-6)
        assert (record.pruned is not None) == (name in masks)
        if record.pruned is not None:
            assert record.pruned.count == np.count_nonzero(masks[name])
            assert record.pruned.rel_l2 == pytest.approx(errors.rel_l2, rel=1e-14)
    total = sum(record.pruned.count for record in records.values() if record.pruned)
    assert total == round(sparsity * sum(tensors[name].size for name in masks))
    compared = tensorcomp.compare(source, done.path)
    for row in compared.tensors:
        assert row.errors is not None
        assert row.errors.rel_l2 == pytest.approx(records[row.name].rel_l2, rel=6e-6)


def test_the_restored_file_has_the_original_header_and_metadata(source, tmp_path):
    done = tensorcomp.compress(source, prune=HALF)
    restored = tensorcomp.decompress(done.path, tmp_path / "restored.safetensors")
    data, before = restored.read_bytes(), source.read_bytes()
    length = 8 + int.from_bytes(before[:8], "little")
    assert data[:length] == before[:length]
    assert len(data) == len(before)
    with open_plain(restored, "np") as file:
        assert file.metadata() == {"format": "pt", "b": "c"}
        assert np.count_nonzero(file.get_tensor(UP) == 0) > 0
    again = tensorcomp.compress(restored, tmp_path / "again.tc.safetensors")
    assert errors_of(again.path, restored) == []


@pytest.mark.parametrize("granularity", ["row", "channel", "block(10, 10)", "nm(2, 4)"])
def test_structures(source, granularity):
    asked = Pruning("magnitude", None if "nm" in granularity else 0.5, granularity=granularity)
    done = tensorcomp.compress(source, prune=asked)
    assert errors_of(done.path, source) == []
    loaded = tensorcomp.load_file(done.path)
    shares = set()
    for name in SELECTED:
        zeros = loaded[name] == 0
        if granularity == "row":
            shares.update(zeros.mean(axis=1))
        elif granularity == "channel":
            shares.update(zeros.mean(axis=0))
        elif granularity == "nm(2, 4)":
            shares.update(zeros.reshape(-1, 4).mean(axis=1))
        else:
            rows, columns = zeros.shape
            tiles = zeros.reshape(rows // 10, 10, columns // 10, 10)
            shares.update(tiles.mean(axis=(1, 3)).reshape(-1))
    assert shares == ({0.5} if granularity == "nm(2, 4)" else {0.0, 1.0})
    with CompressedFile(done.path) as file:
        records = [record.pruned for record in file.manifest.tensors.values() if record.pruned]
    assert {record.granularity for record in records} == {str(parse_granularity(granularity))}


def test_a_statistics_file(source, tmp_path):
    tensors = model()
    random = np.random.default_rng(3)
    measured = {
        name: random.permutation(tensors[name].size).reshape(tensors[name].shape)
        for name in (UP, DOWN, QUERY)
    }
    stats = tmp_path / "stats.safetensors"
    arrays = {name: array.astype(np.float32) for name, array in measured.items()}
    Statistics({"snip": arrays}, 1, 8).save(stats)
    done = tensorcomp.compress(source, prune=Pruning("snip", 0.9, stats=stats, floor=0))
    assert errors_of(done.path, source) == []
    loaded = tensorcomp.load_file(done.path)
    for name, zeros in dropped(measured, 0.9).items():
        wanted = np.where(zeros, np.zeros(1, tensors[name].dtype), tensors[name])
        assert loaded[name].tobytes() == wanted.tobytes()


def test_tensors_that_are_pruned_alike_are_stored_once(tmp_path):
    one, other = weights(60, 80, seed=1), weights(60, 80, seed=2)
    tensors = {
        "a.mlp.weight": one,
        "b.mlp.weight": one.copy(),
        "c.mlp.weight": other,
        "embed_tokens.weight": one.copy(),  # not pruned
    }
    path = write_safetensors(tmp_path / "m.safetensors", tensors)
    for budget in (None, Budget(min_snr=20)):
        done = tensorcomp.compress(path, prune=HALF, budget=budget, force=True)
        assert errors_of(done.path, path) == []
        with CompressedFile(done.path) as file:
            same = {name: record.same_as for name, record in file.manifest.tensors.items()}
        assert same == {
            "a.mlp.weight": None,
            "b.mlp.weight": "a.mlp.weight",
            "c.mlp.weight": None,
            "embed_tokens.weight": None,
        }


def test_tensors_that_only_pruning_made_equal_keep_their_own_records(tmp_path):
    base = weights(40, 50, seed=1)
    other = base.copy()
    base.reshape(-1)[7], other.reshape(-1)[7] = 1e-6, 2e-6  # what goes first
    tensors = {"a.mlp.weight": base, "b.mlp.weight": other}
    path = write_safetensors(tmp_path / "m.safetensors", tensors)
    done = tensorcomp.compress(path, prune=Pruning("magnitude", 0.5, scope="tensor"))
    loaded = tensorcomp.load_file(done.path)
    assert loaded["a.mlp.weight"].tobytes() == loaded["b.mlp.weight"].tobytes()
    assert errors_of(done.path, path) == []
    with CompressedFile(done.path) as file:
        assert all(record.same_as is None for record in file.manifest.tensors.values())


def test_a_folder_of_shards_is_pruned_as_one_model(source, tmp_path):
    tensors = model()
    folder = tmp_path / "shards"
    folder.mkdir()
    names = list(tensors)
    for number, part in enumerate((names[:2], names[2:]), 1):
        path = folder / f"model-0000{number}-of-00002.safetensors"
        write_safetensors(path, {name: tensors[name] for name in part}, {"format": "pt"})
    whole = tensorcomp.load_file(tensorcomp.compress(source, prune=HALF).path)
    for budget in (None, Budget(min_snr=25), Budget(bits_per_weight=4)):
        out = tmp_path / f"{budget}.tc"
        done = tensorcomp.compress(folder, out, prune=HALF, budget=budget)
        assert errors_of(done.path, folder) == []
        found = {}
        for file in sorted(done.path.glob("*.tc.safetensors")):
            found.update(tensorcomp.load_file(file))
        assert set(found) == set(tensors)
        for name in (UP, DOWN, QUERY):
            zeros = whole[name] == 0
            assert not found[name].astype(np.float64)[zeros].any()
            if budget is None:
                assert found[name].tobytes() == whole[name].tobytes()


def test_tensors_in_memory_are_pruned_and_stay_as_they_are():
    tensors = model()
    data = tensorcomp.save(tensors, prune=HALF)
    assert tensors[UP].tobytes() == model()[UP].tobytes()
    zeros = dropped(tensors, 0.5)[UP]
    np.testing.assert_array_equal(tensorcomp.load(data)[UP] == 0, zeros)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("score", ["magnitude", "random"])
def test_nothing_is_written_where_pruning_fails(source, tmp_path, bad, score):
    tensors = model()
    tensors[QUERY][5, 5] = bad
    write_safetensors(source, tensors)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(PruningError, match=r"q_proj\.weight"):
        tensorcomp.compress(source, prune=Pruning(score, 0.5))
    with pytest.raises(PruningError, match="selects no tensor"):
        tensorcomp.compress(source, prune=Pruning(score, 0.5, where="absent"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_torch_checkpoint_with_tied_weights(tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.from_numpy(weights(60, 80))
    saved = {"model": {"mlp.weight": weight, "head.weight": weight, "norm.weight": torch.ones(9)}}
    torch.save(saved, tmp_path / "m.pt")
    done = tensorcomp.compress(tmp_path / "m.pt", prune=HALF)
    assert errors_of(done.path, tmp_path / "m.pt") == []
    restored = tensorcomp.decompress(done.path, tmp_path / "again.pt")
    loaded = torch.load(restored, weights_only=True)["model"]
    assert loaded["mlp.weight"].data_ptr() == loaded["head.weight"].data_ptr()
    assert int((loaded["mlp.weight"] == 0).sum()) == 2400


def test_another_original_is_refused(source, tmp_path):
    for budget in (None, Budget(min_snr=30)):
        done = tensorcomp.compress(source, prune=HALF, budget=budget, force=True)
        other = write_safetensors(
            tmp_path / "other.safetensors", model(9), {"format": "pt", "b": "c"}
        )
        assert len(errors_of(done.path, other)) == len(model()) - 2  # norm and ids are the same
        scaled = model()
        scaled[UP] *= np.float32(1.01)
        other = write_safetensors(
            tmp_path / "scaled.safetensors", scaled, {"format": "pt", "b": "c"}
        )
        assert len(errors_of(done.path, other)) == 1


def test_a_changed_kept_weight_is_found(tmp_path):
    original = {UP: weights(50, 60)}
    path = write_safetensors(tmp_path / "m.safetensors", original)
    flat = np.argsort(np.abs(original[UP]).reshape(-1))
    for place, value in ((flat[-1], 0.123), (flat[0], 0.001)):
        changed = {UP: original[UP].copy()}
        changed[UP].reshape(-1)[place] = value
        other = write_safetensors(tmp_path / "other.safetensors", changed)
        done = tensorcomp.compress(other, tmp_path / "x", prune=HALF, force=True)
        (error,) = errors_of(done.path, path)
        assert "up_proj" in error
    gone = {UP: original[UP].copy()}
    gone[UP].reshape(-1)[flat[9]] *= np.float32(1.0001)
    other = write_safetensors(tmp_path / "other.safetensors", gone)
    done = tensorcomp.compress(path, tmp_path / "x", prune=HALF, force=True)
    (error,) = errors_of(done.path, other)
    assert re.search(r"(0\.\d+) of its norm by pruning, and not \1 \([1-9]e-\d\d off\)$", error)
    kept = {UP: original[UP].copy()}
    kept[UP].reshape(-1)[flat[-1]] *= np.float32(1 + 2**-23)  # one bit: no error in six digits
    other = write_safetensors(tmp_path / "other.safetensors", kept)
    done = tensorcomp.compress(other, tmp_path / "x", prune=HALF, force=True)
    (error,) = errors_of(done.path, path)
    assert "where it was not pruned" in error
