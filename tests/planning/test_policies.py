"""Policies of training states: what is lost, and the guards of each."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tensorcomp
from tensorcomp import Budget, CompressOptions, Pruning
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import OptionError, PlanError
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.policies import GUARD, POLICIES, policy_plan
from tensorcomp.planning.update_plans import plan_given

SHAPE = (96, 160)
LOSSY = [name for name in POLICIES if name != "exact"]


def normal(seed, shape=SHAPE, size=1.0):
    return (size * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def state(step, change=0.02):
    """Return weights, moments and counts of a step; some rows were never touched."""
    weight = normal(0) + normal(step, size=change)
    sizes = [
        np.exp2(2 * np.random.default_rng(step + i).normal(size=n)) for i, n in enumerate(SHAPE)
    ]
    second = (np.outer(*sizes) * 1e-9 * normal(step + 1) ** 2).astype(np.float32)
    second[5:9] = 0
    return {
        "l.weight": weight,
        "l.bias": normal(step, 96),
        "norm.weight": normal(step, 96),
        "exp_avg.l.weight": normal(step + 2) * np.sqrt(second),
        "exp_avg_sq.l.weight": second,
        "exp_avg_sq.l.bias": normal(step, 96) ** 2,
        "step": np.array(float(100 * step), np.float32),
    }


@pytest.fixture
def files(tmp_path):
    for step in (1, 2):
        save_file(state(step), tmp_path / f"{step}.safetensors")
    return tmp_path


@pytest.mark.parametrize("policy", LOSSY)
def test_a_state_is_lost_as_the_policy_says_and_no_more(files, policy):
    source, packed = files / "2.safetensors", files / "2.tc.safetensors"
    done = tensorcomp.compress(source, packed, base=files / "1.safetensors", policy=policy)
    assert not [check for check in tensorcomp.verify(packed, source) if check.error]
    assert done.ratio > {"resume": 10, "archive": 16}[policy]
    found, wanted = tensorcomp.load_file(packed), load_file(source)
    for name in ("l.bias", "norm.weight", "exp_avg_sq.l.bias", "step"):
        assert found[name].tobytes() == wanted[name].tobytes()
    second, before = found["exp_avg_sq.l.weight"], wanted["exp_avg_sq.l.weight"]
    assert ((second == 0) == (before == 0)).all()
    assert second.mean() == pytest.approx(before.mean(), rel=1e-4)
    weight = wanted["l.weight"]
    error = np.linalg.norm(found["l.weight"] - weight)
    change = np.linalg.norm(weight - load_file(files / "1.safetensors")["l.weight"])
    assert error < {"resume": 0.2, "archive": 0.55}[policy] * change
    assert found["exp_avg.l.weight"].any() == (policy == "resume")
    with CompressedFile(packed) as file:
        assert file.record("l.weight").bound == {"max_rel_l2": GUARD.max_rel_l2}
        assert file.record("l.weight").rel_l2 == pytest.approx(
            error / np.linalg.norm(weight), rel=1e-3
        )


def test_weights_stay_within_the_guard_however_far_they_went(tmp_path):
    for step in (1, 2):
        save_file(state(step, change=0.5), tmp_path / f"{step}.safetensors")
    packed = tmp_path / "2.tc.safetensors"
    tensorcomp.compress(
        tmp_path / "2.safetensors", packed, base=tmp_path / "1.safetensors", policy="archive"
    )
    with CompressedFile(packed) as file:
        assert 0.045 < file.record("l.weight").rel_l2 <= GUARD.max_rel_l2


@pytest.mark.parametrize("policy", LOSSY)
def test_errors_do_not_add_up_along_a_chain(tmp_path, policy):
    errors, weight = [], normal(0)
    for step in range(4):
        weight = weight + normal(10 + step, size=0.02)
        save_file({"l.weight": weight}, tmp_path / f"{step}.safetensors")
        base = tmp_path / f"{step - 1}.tc.safetensors" if step else None
        packed = tmp_path / f"{step}.tc.safetensors"
        tensorcomp.compress(tmp_path / f"{step}.safetensors", packed, base=base, policy=policy)
        found = tensorcomp.load_file(packed)["l.weight"]
        errors.append(float(np.linalg.norm(found - weight)))
    assert errors[0] == 0
    assert max(errors[1:]) < 1.3 * min(errors[1:])


def test_weights_without_a_base_are_exact():
    for role in ("mlp", "embedding", "norm", "bias", "step", "router", "integer"):
        assert policy_plan("archive", role, normal(1)) is None
    for role in ("norm", "bias", "step", "router", "integer", "optimizer"):
        assert policy_plan("archive", role, normal(1), normal(2)) is None
    assert policy_plan("exact", "mlp", normal(1), normal(2)) is None
    assert policy_plan("resume", "mlp", normal(1), normal(1)) is None
    assert policy_plan("resume", "mlp", normal(1, 9000), normal(2, 9000)) is None
    assert policy_plan("resume", "mlp", normal(1, (9, 9)), normal(2, (9, 9))) is None
    plan = policy_plan("resume", "mlp", normal(1), normal(2))
    assert plan is not None
    assert plan.tree.codec.id == "update"


def test_policies_go_with_nothing_else():
    with pytest.raises(OptionError, match="policy to be of exact, resume, archive, got 'resum'"):
        CompressOptions(policy="resum")
    for other in ({"budget": Budget(min_snr=30)}, {"prune": Pruning("magnitude", 0.5)}):
        with pytest.raises(PlanError, match="beside a policy"):
            CompressOptions(policy="resume", **other)


def test_a_bound_of_the_update_is_one_of_the_weights(files):
    source, base = files / "2.safetensors", files / "1.safetensors"
    sizes = {}
    for of in ("weights", "update"):
        packed = files / f"{of}.tc.safetensors"
        done = tensorcomp.compress(source, packed, base=base, budget=Budget(max_rel_l2=0.01), of=of)
        sizes[of] = done.output_bytes
        assert not [check for check in tensorcomp.verify(packed, source) if check.error]
        new, old = (load_file(path)["l.weight"] for path in (source, base))
        error = np.linalg.norm(tensorcomp.load_file(packed)["l.weight"] - new)
        whole = {"weights": new, "update": new - old}[of]
        assert 0.0095 < error / np.linalg.norm(whole) <= 0.01
    alone = tensorcomp.compress(source, files / "alone", budget=Budget(max_rel_l2=0.01))
    assert sizes["weights"] < sizes["update"]
    assert sizes["weights"] < alone.output_bytes - 0.3 * 15_360


def test_what_is_far_from_its_base_is_coded_alone():
    plan = TensorPlan(tensorcomp.parse_tree("uniform(0.01)"), "", GUARD)
    assert plan_given(plan, "mlp", normal(1), -normal(1)) == plan
    assert plan_given(plan, "mlp", normal(1), None) == plan
    exact = TensorPlan(reason="small")
    assert plan_given(exact, "mlp", normal(1), normal(1)) == exact
    assert plan_given(None, "mlp", normal(1), normal(1)) is None
    assert plan_given(plan, "mlp", normal(1), normal(1)).tree is None


def test_sizes_beside_a_base_are_refused(files):
    asked = {"base": files / "1.safetensors", "budget": Budget(bits_per_weight=4)}
    with pytest.raises(PlanError, match="expected a bound beside a base, got 4 bits"):
        tensorcomp.compress(files / "2.safetensors", files / "x", **asked)
    with pytest.raises(PlanError, match="expected a base beside bounds of the update"):
        CompressOptions(of="update")
    with pytest.raises(OptionError, match="of to be of weights, update"):
        CompressOptions(of="bias")
