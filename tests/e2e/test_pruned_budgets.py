"""Pruning with budgets, trees of the user's, plans, and targets other than a sparsity."""

from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import errors_of, write_safetensors
from lossy_cases import weights
from pruned_cases import HALF, MOST, UP, dropped, model

import tensorcomp
from tensorcomp.api.plan import plan as make_plan
from tensorcomp.errors import PlanError, PruningError
from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.budgets import Budget
from tensorcomp.pruning import Pruning

BUDGETS = (
    Budget(max_rel_l2=0.03),
    Budget(min_snr=40),
    Budget(max_abs_error=0.002),
    Budget(bits_per_weight=3),
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "model.safetensors", model(), {"format": "pt", "b": "c"})


@pytest.mark.parametrize("budget", [None, *BUDGETS], ids=str)
def test_threads_write_equal_bytes(source, tmp_path, budget):
    written = set()
    for threads in (1, 2, 5):
        out = tmp_path / f"{threads}.tc.safetensors"
        done = tensorcomp.compress(source, out, prune=HALF, budget=budget, threads=threads)
        written.add(done.path.read_bytes())
    assert len(written) == 1


@pytest.mark.parametrize("effort", ["fast", "balanced", "max"])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_bound_holds_for_the_kept_weights_and_zeros_stay_zeros(source, budget, effort):
    tensors = model()
    done = tensorcomp.compress(source, prune=MOST, budget=budget, effort=effort)
    assert errors_of(done.path, source) == errors_of(done.path) == []
    loaded = tensorcomp.load_file(done.path)
    lossy = 0
    for name, zeros in dropped(tensors, 0.9).items():
        assert (
            not np.ascontiguousarray(loaded[name])
            .view(np.uint8)
            .reshape(*zeros.shape, -1)[zeros]
            .any()
        )
        left = np.where(zeros, np.zeros(1, tensors[name].dtype), tensors[name])
        errors = measure(left, loaded[name])
        lossy += not errors.exact
        if budget.bound is not None:
            assert budget.bound.used(errors.rel_l2, errors.max_abs) <= 1
    assert lossy
    if not budget.is_size:
        return
    most = budget.size(source.stat().st_size, sum(array.size for array in tensors.values()))
    assert most is not None
    assert done.path.stat().st_size <= most


@pytest.mark.parametrize(
    "tree", ["trellis(0.004)", "affine(4, 100, symmetric=false)", "sign", "svd(0.5)"]
)
def test_a_tree_that_moves_zeros_is_put_under_a_mask(source, tree):
    done = tensorcomp.compress(source, prune=HALF, codecs=[f"mlp={tree}"])
    assert errors_of(done.path, source) == []
    loaded = tensorcomp.load_file(done.path)
    for name, zeros in dropped(model(), 0.5).items():
        assert not loaded[name].astype(np.float64)[zeros].any()
        assert np.count_nonzero(loaded[name] == 0) == np.count_nonzero(zeros)
    (report,) = done.files.values()
    found = {item.name: item for item in report.summary().tensors}[UP]
    assert found.tree.startswith("sparse(")
    assert "under a mask" in found.reason


def test_a_tree_that_keeps_zeros_stays_as_it_is(source):
    done = tensorcomp.compress(source, prune=HALF, codecs=["mlp=uniform(0.004)"])
    assert errors_of(done.path, source) == []
    (report,) = done.files.values()
    assert {item.name: item for item in report.summary().tensors}[UP].tree.startswith("uniform(")


def test_deep_compression_of_a_stored_checkpoint(source):
    tree = "sparse(mask=gaps, values=kmeans(16, codes=huffman))"
    done = tensorcomp.compress(source, prune=MOST, codecs=[f"linear={tree}"])
    assert errors_of(done.path, source) == []
    loaded = tensorcomp.load_file(done.path)
    assert np.unique(loaded[UP]).size <= 17


def test_a_tensor_of_which_nothing_is_left(tmp_path):
    tensors = {"a.mlp.weight": weights(50, 60), "b.mlp.weight": 100 * weights(50, 60, seed=1)}
    path = write_safetensors(tmp_path / "m.safetensors", tensors)
    for budget in (None, Budget(min_snr=30), Budget(max_abs_error=0.01)):
        asked = Pruning("magnitude", 0.5, floor=0)
        done = tensorcomp.compress(path, prune=asked, budget=budget, force=True)
        assert errors_of(done.path, path) == []
        loaded = tensorcomp.load_file(done.path)
        assert np.count_nonzero(loaded["a.mlp.weight"]) < 150
        assert tensorcomp.load_file(done.path)["b.mlp.weight"].any()


def test_targets_other_than_a_sparsity(source, tmp_path):
    done = tensorcomp.compress(source, prune=Pruning("magnitude", max_rel_l2=0.2))
    assert errors_of(done.path, source) == []
    (report,) = done.files.values()
    shares = [item.pruned.rel_l2 for item in report.summary().tensors if item.pruned]
    assert all(0.199 < share <= 0.2 for share in shares)
    size = source.stat().st_size // 4
    done = tensorcomp.compress(source, tmp_path / "s", prune=Pruning(target_size=size))
    assert 0.99 * size <= done.path.stat().st_size <= size
    assert errors_of(done.path, source) == []
    with pytest.raises(PruningError, match="one of them"):
        tensorcomp.compress(
            source, tmp_path / "t", prune=Pruning(target_size=size), budget=Budget(target_ratio=9)
        )
    with pytest.raises(PruningError):
        tensorcomp.compress(source, tmp_path / "t", prune=Pruning(target_size=1000))
    assert not (tmp_path / "t").exists()


def test_a_plan_of_the_pruned_checkpoint_is_obeyed(source, tmp_path):
    forecast = make_plan(source, budget=Budget(min_snr=25), prune=MOST)
    (tmp_path / "plan.json").write_text(forecast.to_json())
    done = tensorcomp.compress(source, plan=tmp_path / "plan.json", prune=MOST)
    assert errors_of(done.path, source) == []
    assert done.path.stat().st_size == pytest.approx(forecast.output_bytes, rel=0.1)
    for given in (forecast.plan, tmp_path / "plan.json"):
        with pytest.raises(PlanError, match="pruned first, by 'magnitude, element'"):
            tensorcomp.compress(source, tmp_path / "t", plan=given)
    with pytest.raises(PruningError, match="beside a plan"):
        tensorcomp.compress(source, plan=tmp_path / "plan.json", prune=Pruning(target_size=9999))
    with pytest.raises(PruningError, match="plan for a sparsity"):
        make_plan(source, prune=Pruning(target_size=9999))
