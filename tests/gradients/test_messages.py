"""Gradients to bytes and back, with states of their own."""

import math

import ml_dtypes
import numpy as np
import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.server.message import Message, decompress
from tensorcomp.gradients.server.worker import WorkerCompression
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback

F32 = np.float32
SPARSE = "topk(0.05, values=affine(8))"
TEXTS = ["dense", "affine(8)", "affine(4)", 'cast("F16")', "topk(0.01)", SPARSE, "sign"]


def gradients(step=0, scale=1.0):
    rng = np.random.default_rng(step)
    shapes = {"layer.weight": (40, 30), "layer.bias": (40,), "gain": (), "nothing": (0, 3)}
    return {
        name: np.asarray(scale * rng.standard_t(3, shape), F32) for name, shape in shapes.items()
    }


def fed_back(text=SPARSE, **options):
    return WorkerCompression(ErrorFeedback(TreeCompressor.of(text)), **options)


def residuals(worker):
    tensors = worker.state_dict()["tensors"]
    return {name: saved["state"]["residual"] for name, saved in tensors.items()}


def same(first, second):
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and np.array_equal(first[name], second[name])
        for name in first
    )


# --- what is sent ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_a_message_decodes_without_its_compressor(text):
    compressor = Dense() if text == "dense" else TreeCompressor.of(text)
    worker = WorkerCompression(compressor, worker=3, weight=0.5)
    given_ = gradients()
    data = worker.compress(given_)
    message = Message.from_bytes(data)
    assert (message.step, message.worker, message.weight) == (0, 3, 0.5)
    assert list(message.payloads) == list(given_)
    decoded = decompress(data)
    for name, gradient in given_.items():
        spec = GradientSpec(name, gradient.shape, worker=3)
        payload, _ = compressor.step(gradient, compressor.init(spec))
        assert message.payloads[name].data == payload.data
        assert np.array_equal(decoded[name], compressor.decode(payload))
        assert decoded[name].shape == gradient.shape
        assert decoded[name].dtype == F32


RECIPES = [
    *("fp16", "bf16", "int2", "qsgd(4)", "powersgd(2)", "randomk(0.1)", "threshold(0.5)"),
    *("adaptive_threshold(0.05)", "sampled_threshold(0.05)", "error_bounded(max_rel_l2=0.1)"),
    *("dgc(0.01)", "warmup(topk(0.01), steps=1)", "per_role(topk(0.01), small=100)"),
    *("phases(topk(0.01), beginning=0.1)", "adaptive(topk(0.01), int8)"),
]


@pytest.mark.parametrize("text", RECIPES)
def test_every_recipe_is_decoded_and_resumed(text):
    worker, resumed = WorkerCompression(text), WorkerCompression(text)
    for step in range(2):
        decoded = decompress(worker.compress(gradients(step)))
        assert {name: array.shape for name, array in decoded.items()} == {
            name: array.shape for name, array in gradients().items()
        }
        assert np.any(decoded["layer.weight"])
    resumed.load_state_dict(worker.state_dict())
    assert worker.compress(gradients(2)) == resumed.compress(gradients(2))


def test_dense_messages_are_exact_and_texts_are_parsed():
    given_ = gradients()
    assert same(decompress(WorkerCompression("dense").compress(given_)), given_)


def test_what_is_sent_and_what_is_left_add_up_to_all_gradients():
    worker = fed_back("topk(0.05, values=affine(4))")
    total = {name: np.zeros(g.shape, np.float64) for name, g in gradients().items()}
    sent = {name: np.zeros(g.shape, np.float64) for name, g in gradients().items()}
    for step in range(12):
        now = gradients(step)
        for name, array in decompress(worker.compress(now)).items():
            sent[name] += array
            total[name] += now[name]
    assert worker.step == 12
    for name, left in residuals(worker).items():
        error = np.linalg.norm(sent[name] + left.reshape(sent[name].shape) - total[name])
        assert error <= 1e-5 * max(np.linalg.norm(total[name]), 1e-30)
    assert np.linalg.norm(residuals(worker)["layer.weight"]) > 1


def test_a_sparse_message_is_small():
    values = np.random.default_rng(0).standard_normal((1000, 1000)).astype(F32)
    data = fed_back("topk(0.01, values=affine(8))").compress({"weight": values})
    assert len(data) < 10_000 * 17 / 8 + 300  # 17 bits for each of 10,000 kept values


@pytest.mark.parametrize(
    ("dtype", "decoded"),
    [
        (np.float16, F32),
        (ml_dtypes.bfloat16, F32),
        (F32, F32),
        (">f4", F32),
        (np.float64, np.float64),
    ],
)
def test_floats_are_widened_to_float32_and_float64_is_kept(dtype, decoded):
    values = np.array([[1.5, -2.0], [0.25, 3.0]]).astype(dtype)
    worker = WorkerCompression("dense")
    for array in (values, np.asfortranarray(values), values[::-1][::-1]):
        found = decompress(worker.compress({"w": array}))["w"]
        assert found.dtype == decoded
        assert found.tolist() == [[1.5, -2.0], [0.25, 3.0]]


def test_the_input_is_not_changed():
    given_ = gradients()
    before = {name: array.copy() for name, array in given_.items()}
    for array in given_.values():
        array.flags.writeable = False
    worker = fed_back()
    worker.compress(given_)
    worker.compress(given_)
    assert same(given_, before)


def test_a_message_may_have_its_own_weight_and_step():
    worker = WorkerCompression("dense", weight=2)
    data = worker.compress(gradients(), info=StepInfo(40), weight=7)
    assert (Message.from_bytes(data).step, Message.from_bytes(data).weight) == (40, 7)
    data = worker.compress(gradients())
    assert (Message.from_bytes(data).step, Message.from_bytes(data).weight) == (41, 2)


def test_a_parameter_that_is_left_out_keeps_its_residual():
    worker, other = fed_back(), fed_back()
    now = gradients()
    worker.compress(now)
    other.compress(now)
    kept = residuals(worker)["layer.weight"]
    data = worker.compress({"layer.bias": now["layer.bias"]})
    assert list(decompress(data)) == ["layer.bias"]
    assert np.array_equal(residuals(worker)["layer.weight"], kept)
    assert worker.compress({}) != b""
    later = decompress(worker.compress(gradients(5)))["layer.weight"]
    assert np.array_equal(later, decompress(other.compress(gradients(5)))["layer.weight"])


class Switching(Compressor):
    """Sparse at first, dense from the second step on, with error feedback all the time."""

    def at(self, info, spec):
        return ErrorFeedback(TreeCompressor.of(SPARSE) if info.step < 1 else Dense())

    def text(self):
        raise AssertionError("what decides is never sent")

    step = receive = text


def test_a_residual_outlives_another_choice_of_compressor():
    Switching.__abstractmethods__ = frozenset()
    worker = WorkerCompression(Switching())
    first, second = gradients(0), gradients(1)
    sent = decompress(worker.compress(first))
    assert not same(sent, first)
    rest = decompress(worker.compress(second))
    for name in first:
        expected = first[name] + second[name]
        assert sent[name] + rest[name] == pytest.approx(expected, abs=1e-5)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_changes_nothing(bad):
    worker, control = fed_back(), fed_back()
    for one in (worker, control):
        one.compress(gradients(0))
    spoiled = gradients(1)
    spoiled["layer.bias"][3] = bad
    with pytest.raises(GradientError, match=r"1 values of the gradient of 'layer\.bias' are not f"):
        worker.compress(spoiled)
    assert worker.step == 1
    assert same(residuals(worker), residuals(control))
    assert worker.compress(gradients(2)) == control.compress(gradients(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer.bias": np.zeros(41, F32)}, r"float32 \(41,\), but was float32 \("),
        ({"layer.bias": np.zeros(40)}, r"'layer\.bias' is float64 \(40,\), but was float32 \(40"),
        ({"new": np.zeros(3, np.int64)}, "expected floats for the gradient of 'new', got int64"),
        (
            {"new": np.zeros(3, np.complex64)},
            "expected floats for the gradient of 'new', got complex64",
        ),
        ({"new": np.zeros(3, bool)}, "expected floats for the gradient of 'new', got bool"),
    ],
)
def test_what_cannot_be_compressed_is_refused_by_name(change, message):
    worker = fed_back()
    worker.compress(gradients(0))
    before = residuals(worker)
    with pytest.raises(GradientError, match=message):
        worker.compress({**gradients(1), **change})
    assert same(residuals(worker), before)


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf])
def test_a_weight_is_above_zero(weight):
    with pytest.raises(GradientError, match="expected a finite weight above 0"):
        WorkerCompression("dense", weight=weight)
    with pytest.raises(GradientError, match="expected a finite weight above 0"):
        WorkerCompression("dense").compress(gradients(), weight=weight)


# --- states ----------------------------------------------------------------------------------


def test_a_loaded_state_goes_on_bit_for_bit():
    worker = fed_back(worker=2)
    for step in range(3):
        worker.compress(gradients(step))
    saved = worker.state_dict()
    resumed = fed_back(worker=2)
    resumed.load_state_dict(saved)
    for step in range(3, 7):
        assert worker.compress(gradients(step)) == resumed.compress(gradients(step))
    # The saved arrays are no longer those that go on.
    again = fed_back(worker=2)
    again.load_state_dict(saved)
    assert again.step == 3
    fresh = fed_back(worker=2)
    for step in range(3):
        fresh.compress(gradients(step))
    assert again.compress(gradients(3)) == fresh.compress(gradients(3))


def test_a_state_is_plain():
    worker = fed_back()
    worker.compress(gradients())

    def check(value):
        if isinstance(value, dict):
            assert all(type(key) is str for key in value)
            for item in value.values():
                check(item)
        elif isinstance(value, list):
            assert all(type(item) is int for item in value)
        else:
            assert type(value) in (int, float, str, np.ndarray)

    check(worker.state_dict())


@pytest.mark.parametrize("turned", [False, True])
def test_a_state_of_another_compressor_is_refused(turned):
    first, second = fed_back(), WorkerCompression(TreeCompressor.of(SPARSE))
    if turned:
        first, second = second, first
    first.compress(gradients())
    with pytest.raises(GradientError, match=r"another compressor's than topk.*has 'residual'"):
        second.load_state_dict(first.state_dict())


# --- messages that were lost -----------------------------------------------------------------


def test_a_lost_message_is_taken_back():
    worker = fed_back()
    total, arrived = np.zeros((40, 30)), np.zeros((40, 30))
    lost = []
    for step in range(6):
        now = gradients(step)
        data = worker.compress(now)
        total += now["layer.weight"]
        if step in (1, 4):
            lost.append(data)
        else:
            arrived += decompress(data)["layer.weight"]
    for data in lost:
        worker.take_back(data)
    left = residuals(worker)["layer.weight"].reshape(40, 30)
    assert np.linalg.norm(arrived + left - total) <= 1e-5 * np.linalg.norm(total)
    before = residuals(worker)["layer.weight"].copy()
    worker.compress(gradients(6))
    worker.compress(gradients(7))
    assert not np.array_equal(before, residuals(worker)["layer.weight"])


def test_what_cannot_be_taken_back_is_refused():
    worker, other = fed_back(worker=1), fed_back(worker=2)
    data = worker.compress(gradients())
    other.compress(gradients())
    with pytest.raises(GradientError, match="of worker 1 cannot be taken back by 2"):
        other.take_back(data)
    with pytest.raises(GradientError, match=r"no gradient of 'layer\.weight' was sent"):
        fed_back(worker=1).take_back(data)
    plain = WorkerCompression("affine(8)")
    with pytest.raises(GradientError, match=r"'layer\.weight' cannot be taken back"):
        plain.take_back(plain.compress(gradients()))
