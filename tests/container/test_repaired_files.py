"""Pruned checkpoints whose kept weights make up for the pruned ones."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from calibrated_checkpoints import (
    CONV,
    DOWN,
    GATE,
    HEAD,
    TIED,
    UP,
    statistics,
    tensors,
    write_model,
)
from checkpoint_files import errors_of, write_safetensors
from tampering import manifest_of, with_manifest

import tensorcomp
from tensorcomp import Budget, CompressOptions, Pruning
from tensorcomp.errors import CheckpointError, PlanError, PruningError

REPAIRED = (UP, GATE, CONV, DOWN, HEAD)


def pruning(score="obs", sparsity: float | None = 0.5, *, repair=True, **fields):
    return Pruning(score, sparsity, stats=statistics(), repair=repair, **fields)


def output_error(name, array):
    """Return the squared error of what a layer returns."""
    error = (array.astype(np.float64) - tensors()[name]).reshape(len(array), -1)
    error = error.T if name == GATE else error
    moment = statistics().moment(name).matrix[0].astype(np.float64)
    return float(np.einsum("ri,ij,rj->", error, moment, error))


@pytest.fixture
def source(tmp_path):
    return write_model(tmp_path / "model.safetensors")


@pytest.mark.parametrize("granularity", ["element", "nm(2, 4)", "channel"])
def test_outputs_are_nearer_and_zeros_where_they_were(source, tmp_path, granularity):
    sparsity = None if "nm" in granularity else 0.5
    found = {}
    for repair in (False, True):
        asked = pruning(sparsity=sparsity, granularity=granularity, repair=repair)
        done = tensorcomp.compress(source, tmp_path / f"{repair}.tc.safetensors", prune=asked)
        assert errors_of(done.path, source) == errors_of(done.path) == []
        found[repair] = tensorcomp.load_file(done.path)
        recorded = manifest_of(done.path.read_bytes())["tensors"]
        own = [name for name in REPAIRED if "pruned" in recorded[name]]
        assert len(own) >= 4
        if granularity == "channel":
            own.remove(GATE)  # whole outputs are gone
        assert all(recorded[name]["pruned"].get("repaired", False) is repair for name in own)
        assert ("repaired" in str(recorded)) is repair
    for name in own:
        np.testing.assert_array_equal(found[True][name] == 0, found[False][name] == 0)
        assert output_error(name, found[True][name]) < 0.7 * output_error(name, found[False][name])
    np.testing.assert_array_equal(found[True][TIED], found[True][HEAD])


def test_bytes_do_not_depend_on_threads(source, tmp_path):
    done = [
        tensorcomp.compress(source, tmp_path / f"{n}.tc.safetensors", prune=pruning(), threads=n)
        for n in (1, 3)
    ]
    assert done[0].path.read_bytes() == done[1].path.read_bytes()


@pytest.mark.parametrize("name", [UP, CONV])
def test_verification_finds_a_kept_weight_that_is_another(source, name):
    done = tensorcomp.compress(source, prune=pruning())
    changed = {key: value.copy() for key, value in tensorcomp.load_file(done.path).items()}
    changed[name].reshape(-1)[np.flatnonzero(changed[name])[3]] *= 1.5
    other = source.with_name("other.safetensors")
    forged = tensorcomp.compress(write_safetensors(other, changed)).path
    records = manifest_of(done.path.read_bytes())["tensors"]

    def claim(manifest):
        for key, record in records.items():
            for member in ("error", "pruned"):
                if member in record:
                    manifest["tensors"][key][member] = record[member]
        manifest["source_bytes"] = source.stat().st_size

    forged.write_bytes(with_manifest(forged.read_bytes(), claim))
    (error,) = errors_of(forged, source)
    assert "of its norm by pruning, and not" in error


@pytest.mark.parametrize("statistics_too", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_lossy_on_top_keeps_the_zeros(tmp_path, dtype, statistics_too):
    if dtype != np.float32:
        source = write_model(tmp_path / "m.safetensors", dtype)
        measured = replace(statistics(), digests={})
    else:
        source, measured = write_model(tmp_path / "m.safetensors"), statistics()
    asked = Pruning("obs", 0.5, stats=measured, repair=True)
    exact = tensorcomp.load_file(
        tensorcomp.compress(source, tmp_path / "exact.tc.safetensors", prune=asked).path
    )
    done = tensorcomp.compress(
        source,
        prune=asked,
        budget=Budget(bits_per_weight=3),
        statistics=measured if statistics_too else None,
    )
    assert errors_of(done.path, source) == errors_of(done.path) == []
    loaded = tensorcomp.load_file(done.path)
    for name in REPAIRED:
        assert (loaded[name] != exact[name]).any()
        assert not loaded[name][exact[name] == 0].any()
    limited = tensorcomp.compress(source, force=True, prune=asked, budget=Budget(max_rel_l2=0.05))
    assert errors_of(limited.path, source) == []
    close = tensorcomp.load_file(limited.path)
    for name in REPAIRED:
        error = close[name].astype(np.float64) - exact[name].astype(np.float64)
        assert np.linalg.norm(error) <= 0.05 * np.linalg.norm(exact[name].astype(np.float64))


def test_a_lossy_error_above_the_bound_is_found(source):
    done = tensorcomp.compress(source, prune=pruning(), budget=Budget(max_rel_l2=0.05))

    def forge(manifest):
        record = manifest["tensors"][UP]
        record["pruned"]["rel_l2"] /= 2

    done.path.write_bytes(with_manifest(done.path.read_bytes(), forge))
    (error,) = errors_of(done.path, source)
    assert "has rel_l2" in error


@pytest.mark.parametrize("lossy", [False, True])
def test_a_size_is_met_by_pruning_and_repair(source, lossy):
    options = CompressOptions()
    if lossy:
        options = CompressOptions(budget=Budget(max_output_error=0.05), statistics=statistics())
    whole = source.with_name("whole.tc.safetensors")
    most = tensorcomp.compress(source, whole, options=options).output_bytes * 3 // 4
    asked = Pruning("magnitude", target_size=most, stats=statistics(), repair=True)
    done = tensorcomp.compress(source, options=replace(options, prune=asked))
    assert 0.97 * most < done.output_bytes <= most
    assert errors_of(done.path, source) == []


def test_what_cannot_be_repaired_is_refused(source):
    with pytest.raises(PruningError, match="expected statistics to repair by, got none"):
        Pruning("magnitude", 0.5, repair=True)
    norms = replace(statistics(), arrays={"input_norm": {UP: np.ones(48, np.float32)}})
    asked = Pruning("magnitude", 0.5, stats=norms, repair=True)
    with pytest.raises(PlanError, match="expected second moments, got input_norm"):
        tensorcomp.compress(source, prune=asked, force=True)


def test_other_weights_are_refused(tmp_path):
    changed = {name: array.copy() for name, array in tensors().items()}
    changed[DOWN][0, 0] += 1
    source = write_safetensors(tmp_path / "m.safetensors", changed)
    with pytest.raises(CheckpointError, match=f"statistics of another model: tensor '{DOWN}'"):
        tensorcomp.compress(source, prune=pruning())
    assert list(tmp_path.iterdir()) == [source]
    changed[DOWN][0, 0] = np.nan
    write_safetensors(source, changed)
    measured = replace(statistics(), digests={})
    with pytest.raises(PruningError, match=f"'{DOWN}'.*NaN"):
        tensorcomp.compress(source, prune=Pruning("obs", 0.5, stats=measured, repair=True))
    other = {name: array[: len(array) // 2] for name, array in tensors().items()}
    write_safetensors(source, other)
    with pytest.raises(CheckpointError, match="statistics of another model"):
        tensorcomp.compress(source, prune=Pruning("lamp", 0.5, stats=measured, repair=True))
