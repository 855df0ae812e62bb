"""Whatever is drawn, a lossy file keeps what it promises on what it decodes to."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lossy_cases import UNIFORM, check, profile_of, weights, write

import tensorcomp
from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.profiles import Profile
from tensorcomp.testing import nasty_arrays

DTYPES = (
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz,
    np.complex64,
)
SHAPES = st.sampled_from(
    [(), (1,), (0, 7), (1, 300), (300, 1), (700,), (40, 30), (16, 4, 3, 3), (3, 2, 5, 2, 4), (9, 0)]
)
KINDS = ("normal", "tails", "sparse", "few", "low rank", "rows", "zeros", "constant", "outlier")
TREES = (
    "uniform($step)",
    "uniform($step, codes=huffman)",
    "uniform($step, bounded=true)",
    "trellis($step)",
    "affine(4, 32)",
    "affine(8)",
    "kmeans(16, codes=huffman)",
    'cast("F16")',
    "svd(0.5, left=uniform($step), right=uniform($step))",
    "svd(0.25)",
    "magnitude(0.5, values=uniform($step))",
    "magnitude(0.9, values=kmeans(16, codes=huffman), mask=gaps)",
    "filter(0.25, values=uniform($step))",
    "channel(0.25, values=affine(8, 32))",
    "nm(2, 4, values=uniform($step))",
    "topk(0.3)",
    "nf4(32)",
    "ternary",
    "sign",
    "pq(4, 16)",
)
BOUNDS = st.one_of(
    st.builds(Budget, max_rel_l2=st.floats(1e-4, 1.5)),
    st.builds(Budget, min_snr=st.floats(-3, 90)),
    st.builds(Budget, max_abs_error=st.floats(1e-6, 2)),
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = draw(SHAPES)
    random = np.random.default_rng(draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(KINDS))
    values = random.standard_normal(shape)
    if kind == "tails":
        values = random.standard_t(3, shape)
    elif kind == "sparse":
        values = np.where(random.random(shape) < 0.8, -0.0, values)
    elif kind == "few":
        values = np.rint(values * 2)
    elif kind == "low rank" and len(shape) == 2:
        values = random.standard_normal((shape[0], 2)) @ random.standard_normal((2, shape[1]))
    elif kind == "rows" and shape:
        values = values * 10.0 ** random.uniform(-3, 1, (shape[0], *[1] * (len(shape) - 1)))
    elif kind == "zeros":
        values = np.zeros(shape)
    elif kind == "constant":
        values = np.full(shape, 0.3)
    elif kind == "outlier" and values.size:
        values.reshape(-1)[0] = 400
    scaled = values * draw(st.sampled_from([1.0, 0.02, 1e-3]))
    return np.asarray(scaled).astype(draw(st.sampled_from(DTYPES)))


CHECKPOINTS = st.dictionaries(st.sampled_from("abcd"), arrays(), min_size=1, max_size=3)
CHUNKS = st.sampled_from([64, 500, 1 << 20])


@settings(max_examples=120)
@given(
    tensors=CHECKPOINTS,
    trees=st.lists(st.sampled_from(TREES), min_size=1, max_size=3, unique=True),
    budget=BOUNDS,
    chunk=CHUNKS,
)
def test_bounds_hold_whatever_the_tree(tensors, trees, budget, chunk):
    asked = {"profile": profile_of(*trees), "budget": budget, "chunk_elements": chunk}
    data, _ = write(tensors, **asked)
    check(data, tensors, budget)
    assert write(tensors, threads=2, **asked)[0] == data


@settings(max_examples=60)
@given(tensors=CHECKPOINTS, tree=st.sampled_from([t for t in TREES if "$" not in t]), chunk=CHUNKS)
def test_trees_without_a_budget_tell_their_errors(tensors, tree, chunk):
    data, _ = write(tensors, codecs=[f"*={tree}"], profile=None, chunk_elements=chunk)
    check(data, tensors)


@settings(max_examples=60)
@given(
    tensors=CHECKPOINTS,
    trees=st.lists(st.sampled_from(TREES), min_size=1, max_size=2, unique=True),
    bits=st.floats(1, 40),
    kind=st.sampled_from(["bits_per_weight", "target_ratio", "target_size"]),
    chunk=CHUNKS,
)
def test_sizes_are_never_exceeded(tensors, trees, bits, kind, chunk):
    elements = sum(array.size for array in tensors.values())
    given = {
        "bits_per_weight": bits,
        "target_ratio": 32 / bits,
        "target_size": int(bits * elements / 8) + 500,
    }
    budget = Budget(**{kind: given[kind]})
    asked = {"profile": profile_of(*trees), "budget": budget, "chunk_elements": chunk}
    try:
        data, report = write(tensors, **asked)
    except PlanError as error:
        if "is not possible" in str(error):
            return
        raise
    most = budget.size(report.input_bytes, elements)
    assert most is not None
    assert len(data) <= most
    check(data, tensors)
    assert write(tensors, threads=2, **asked)[0] == data


NAMED = (
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.mlp.up_proj.weight",
    "lm_head.weight",
    "conv1.weight",
    "fc.weight",
)


@settings(max_examples=60)
@given(
    names=st.lists(st.sampled_from(NAMED), min_size=1, max_size=3, unique=True),
    kind=st.sampled_from(["dense", "low rank", "dead rows", "sparse", "half"]),
    profile=st.sampled_from(["transformer", "cnn", "mlp", "memory", "speed"]),
    effort=st.sampled_from(["fast", "balanced", "max", None]),
    budget=st.one_of(
        st.builds(Budget, min_snr=st.floats(5, 60)),
        st.builds(Budget, max_abs_error=st.floats(1e-3, 0.1)),
        st.builds(Budget, bits_per_weight=st.floats(3, 9)),
        st.none(),
    ),
    seed=st.integers(0, 99),
)
def test_shipped_profiles_keep_their_promises(names, kind, profile, effort, budget, seed):
    tensors = {}
    for number, name in enumerate(names):
        shape = (48, 16, 3, 3) if name.startswith("conv") else (96, 80)
        array = weights(*shape, seed=seed + number)
        if kind == "low rank":
            array = weights(96, 4, seed=seed) @ weights(4, 80, scale=1.0, seed=seed + number)
        elif kind == "dead rows":
            array[::5] *= 1e-4
        elif kind == "sparse":
            array[np.random.default_rng(seed).random(shape) < 0.8] = 0
        elif kind == "half":
            array = array.astype(ml_dtypes.bfloat16)
        tensors[name] = array
    asked = {"profile": profile, "budget": budget, "effort": effort}
    data, report = write(tensors, **asked)
    check(data, tensors, budget)
    assert write(tensors, threads=2, **asked)[0] == data
    most = budget and budget.size(report.input_bytes, sum(a.size for a in tensors.values()))
    assert most is None or len(data) <= most


@pytest.mark.parametrize("bits", [2.0, 3.5, 5.0, 8.0, 10.0])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_sizes_are_used(bits, dtype):
    one = {"a": weights(400, 300, dtype=dtype)}
    several = {
        "a": weights(400, 300, dtype=dtype),
        "b": weights(250, 500, scale=1.0, seed=1, dtype=dtype),
        "c": weights(200_000, scale=1e-4, seed=2, dtype=dtype),
        "ids": np.arange(1000),
    }
    for tensors in (one, several):
        for chunk in (1 << 20, 40_000):
            budget = Budget(bits_per_weight=bits)
            data, _ = write(tensors, budget=budget, chunk_elements=chunk)
            most = int(bits * sum(array.size for array in tensors.values()) / 8)
            assert len(data) <= most
            lossless = sum(1 for name in tensors if name not in check(data, tensors))
            if lossless == len(tensors) - len({"a", "b", "c"} & set(tensors)):
                assert len(data) >= 0.995 * most
            else:  # bits are so many that some tensor may keep all of its own
                assert len(data) >= 0.9 * most


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 1e-308, 1e-200, 1e200, 1e307])
@pytest.mark.parametrize("budget", [Budget(bits_per_weight=20), Budget(target_ratio=1.2)], ids=str)
def test_one_odd_tensor_does_not_spoil_a_size(budget, unit):
    weights = np.random.default_rng(6).standard_normal((64, 64))
    lonely = np.zeros((64, 64))
    lonely[3, 3] = unit
    tensors = {"a.weight": weights * unit, "b.weight": weights, "c.weight": lonely}
    check(write(tensors, budget=budget)[0], tensors)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    "budget", [Budget(min_snr=20), Budget(min_snr=35), Budget(max_abs_error=0.05)], ids=str
)
@pytest.mark.parametrize("shape", [(96, 512), (1 << 16,)])
def test_more_effort_never_takes_more_bytes(shape, budget, dtype):
    weights = np.random.default_rng(5).standard_normal(shape).astype(dtype)
    sizes = [
        len(tensorcomp.save({"block.linear.weight": weights}, effort=effort, budget=budget))
        for effort in ("fast", "balanced", "max")
    ]
    header = 64  # which tells the effort, and the tree
    assert sizes[2] - header <= sizes[1] <= sizes[0] + header


def test_more_bits_for_what_counts_more():
    tensors = {name: weights(300, 300, seed=i) for i, name in enumerate("ab")}
    budget = Budget(bits_per_weight=4)
    even = check(write(tensors, budget=budget)[0], tensors)
    odd = check(write(tensors, budget=budget, importance={"a": 16.0, "b": 1.0})[0], tensors)
    assert even["a"].rel_l2 == pytest.approx(even["b"].rel_l2, rel=0.05)
    assert odd["b"].rel_l2 / odd["a"].rel_l2 == pytest.approx(4, rel=0.1)


def test_nasty_arrays_keep_every_bound():
    tensors = {
        name: array.astype(array.dtype.newbyteorder("<"))
        for name, array in nasty_arrays().items()
        if array.size <= 20_000
    }
    for budget in (
        Budget(min_snr=30),
        Budget(min_snr=70),
        Budget(max_abs_error=1e-3),
        Budget(max_abs_error=1e-42),
        Budget(max_rel_l2=2),
        Budget(min_snr=1000),
    ):
        for chunk in (700, 1 << 20):
            data, report = write(tensors, budget=budget, chunk_elements=chunk)
            check(data, tensors, budget)
            assert all(item.reason or item.same_as for item in report.summary().tensors)


def test_what_is_not_asked_for_is_not_touched():
    from tensorcomp.planning.profiles import load_profile

    tensors = {
        "model.layers.0.mlp.up_proj.weight": weights(100, 80),
        "model.layers.0.mlp.up_proj.bias": weights(5000),
        "model.norm.weight": weights(5000),
        "model.layers.0.mlp.gate.weight": weights(64, 100),
        "model.small.weight": weights(63, 65),
        "position_ids": np.arange(8000),
        "mask": np.tril(np.ones((90, 90), bool)),
        "model.layers.0.mlp.up_proj.weight_scale": weights(70, 70),
    }
    names: list[Profile] = [load_profile(name) for name in ("transformer", "cnn", "mlp", "speed")]
    for profile in names:
        lossy = check(write(tensors, profile=profile, budget=Budget(min_snr=20))[0], tensors)
        assert "model.layers.0.mlp.up_proj.weight" in lossy
        assert set(lossy) <= {"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate.weight"}


def test_equal_tensors_are_stored_once():
    array = weights(300, 400)
    tensors = {
        "a": array,
        "b": array.copy(),
        "flat": array.reshape(-1),
        "c": weights(300, 400, seed=1),
    }
    for budget in (Budget(min_snr=30), Budget(bits_per_weight=4), Budget(target_ratio=10)):
        data, report = write(tensors, budget=budget)
        check(data, tensors, budget)
        same = {item.name: item.same_as for item in report.summary().tensors}
        assert same["b"] == "a"
        most = budget.size(report.input_bytes, 480_000)
        if most is not None:
            assert 0.995 * most <= len(data) <= most
    data, report = write(tensors, budget=Budget(min_snr=30), bounds={"b": Budget(min_snr=50)})
    lossy = check(data, tensors)
    assert lossy["a"].rel_l2 > 5 * lossy["b"].rel_l2


def test_many_chunks_share_one_bound():
    """Parts of a tensor that are unlike each other, and unlike its sample."""
    array = weights(400, 100)
    array[:50] *= 100
    array[333] = 0
    for budget in (Budget(min_snr=30), Budget(max_abs_error=0.01), Budget(bits_per_weight=5)):
        for chunk in (1 << 20, 3000, 100)[: 2 if budget.is_size else 3]:
            data, _ = write({"x": array}, budget=budget, chunk_elements=chunk)
            assert check(data, {"x": array}, budget)


def test_saving_takes_what_compressing_takes():
    tensors = {"x": weights(100, 100), "y": weights(90, 100)}
    data = tensorcomp.save(tensors, profile=UNIFORM, budget=Budget(min_snr=25))
    check(data, tensors, Budget(min_snr=25))
    assert len(check(tensorcomp.save(tensors, codecs="y=affine(4)"), tensors)) == 1
    assert check(tensorcomp.save(tensors), tensors) == {}
