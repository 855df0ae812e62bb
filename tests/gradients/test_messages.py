"""Gradients to bytes and back, with states of their own."""

import contextlib
import json
import math
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp._zstd_frames import compress
from tensorcomp.errors import CodecError, GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.server.message import _TYPICAL, Message, decompress
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
        ({"new": np.zeros(3, np.int64)}, "'new' is int64; floats are expected"),
        ({"new": np.zeros(3, np.complex64)}, "'new' is complex64; floats are expected"),
        ({"new": np.zeros(3, bool)}, "'new' is bool; floats are expected"),
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
    with pytest.raises(GradientError, match="a weight is a number above 0"):
        WorkerCompression("dense", weight=weight)
    with pytest.raises(GradientError, match="a weight is a number above 0"):
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


# --- damage and attacks ----------------------------------------------------------------------


def small_message():
    return fed_back().compress({"w": np.linspace(-1, 1, 100, dtype=F32)})


@given(st.data())
def test_a_damaged_message_is_found(data):
    message = bytearray(small_message())
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CodecError, GradientError)):
        decompress(bytes(message))


@given(st.integers(0, 10_000))
def test_a_message_that_was_cut_short_is_found(length):
    message = small_message()
    with pytest.raises(CodecError, match=r"no message of compressed gradients|checksum"):
        decompress(message[: length % len(message)])


def sealed(header, payloads=b""):
    """Return a message with right checksums, whatever its safetensors header says."""
    plain = header if isinstance(header, bytes) else file_header(header)
    packed = compress(plain, 3, like=_TYPICAL)
    content = struct.pack("<Q", len(packed)) + packed + payloads
    return content + struct.pack("<Q", xxhash.xxh3_64_intdigest(content))


def file_header(about, entries=None):
    """Return the header of a safetensors file with this metadata, by default of one empty `w`."""
    if entries is None:
        entries = {"w": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}
    metadata = {"tensorcomp.gradients": about if isinstance(about, str) else json.dumps(about)}
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    return len(text).to_bytes(8, "little") + text


def entry(begin, stop):
    return {"dtype": "U8", "shape": [stop - begin], "data_offsets": [begin, stop]}


def header(**changes):
    usual = {"version": 2, "step": 0, "worker": 0, "weight": 1.0, "texts": ["raw"]}
    return {**usual, "tensors": [["F32", [4], 0]], **changes}


def test_an_empty_payload_stands_for_zeros():
    assert decompress(sealed(header()))["w"].tolist() == [0.0] * 4


BAD_FIELDS = {
    "step": [-1, True, 1 << 63],
    "worker": [-2, "1"],
    "weight": [0, -1.0, math.nan, math.inf, 10**400, "1"],
    "texts": [[], [3], None],
    "tensors": [
        *(None, [], [["F32", [4]]], [["F32", [4], 0], ["F32", [4], 0]], [["F32", [4], 1]]),
        *([["F32", [4], -1]], [["F32", [-4], 0]], [["F32", [4.0], 0]], [["F32", 4, 0]]),
        *([["F32", [1] * 33, 0]], [["I32", [4], 0]], [[["F32"], [4], 0]]),
    ],
}


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"null",
        b"[]",
        {},
        *(header(**{field: bad}) for field, values in BAD_FIELDS.items() for bad in values),
        *("", "{", "[" * 100_000, "null", "[]"),
        file_header(header(), {"w": entry(0, 1)}),
        file_header(header(), {"w": {"dtype": "U8", "shape": [-1], "data_offsets": [0, -1]}}),
        file_header(header(), {"w": entry(4, 4)}),
        file_header(header()).replace(b'"w"', b'"w": {}, "w"'),
        b'{"__metadata__": {}}',
    ],
)
def test_a_false_header_is_refused(broken):
    with pytest.raises(CodecError, match="header is damaged") as caught:
        decompress(sealed(broken))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "limit"), [([1 << 20], 1 << 20), ([1 << 40] * 32, 1 << 30), ([1 << 62, 0], 1 << 30)]
)
def test_a_message_takes_no_more_memory_than_its_limit(shape, limit):
    data = sealed(header(tensors=[["F32", shape, 0]]))
    tracemalloc.start()
    try:
        with pytest.raises(GradientError, match="more than its limit: 'w' of shape"):
            decompress(data, limit=limit)
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()


def test_the_limit_is_for_all_tensors_together():
    tensors = [["F32", [100], 0], ["F64", [50], 0]]
    data = sealed(file_header(header(tensors=tensors), {"a": entry(0, 0), "b": entry(0, 0)}))
    assert set(decompress(data, limit=800)) == {"a", "b"}
    with pytest.raises(GradientError, match=r"'b' of shape \(50,\) takes 400 bytes, 399 are left"):
        decompress(data, limit=799)


def test_a_header_that_expands_too_far_is_refused():
    with pytest.raises(CodecError, match="it claims 67108865 bytes"):
        decompress(sealed(b" " * ((1 << 26) + 1)))
    with pytest.raises(CodecError, match="it claims"):
        decompress(sealed(b" " * (1 << 24)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "topk(",
        "topk(2.5)",
        "affine( 8 )",
        "raw" * 10_000,
        "affine(" * 5_000 + ")" * 5_000,
        "__import__(os)",
    ],
)
def test_a_text_that_is_no_compressors_is_refused(text):
    data = sealed(file_header(header(texts=[text]), {"w": entry(0, 3)}), b"abc")
    with pytest.raises(GradientError, match="cannot be read") as caught:
        decompress(data)
    assert len(str(caught.value)) < 1000


def test_payloads_that_do_not_end_where_the_message_does_are_refused():
    with pytest.raises(CodecError, match="3 bytes follow the last tensor"):
        decompress(sealed(header(), b"abc"))
    with pytest.raises(CodecError, match="cut short: 4 bytes of tensors expected, 3 found"):
        decompress(sealed(file_header(header(), {"w": entry(0, 4)}), b"abc"))


def test_a_newer_version_is_told():
    with pytest.raises(GradientError, match="expected a message of version 2, got 3"):
        decompress(sealed(header(version=3)))


@given(st.binary(max_size=64), st.sampled_from(TEXTS[1:]), st.integers(0, 300))
def test_payloads_of_anything_do_no_harm(payload, text, elements):
    text = TreeCompressor.of(text).text()
    blob = payload + struct.pack("<Q", xxhash.xxh3_64_intdigest(payload))
    about = header(texts=[text], tensors=[["F32", [elements], 0]])
    data = sealed(file_header(about, {"w": entry(0, len(blob))}), blob)
    with contextlib.suppress(CodecError):
        assert decompress(data)["w"].shape == (elements,)


def test_damaged_states_are_refused_and_change_nothing():
    worker = fed_back()
    worker.compress(gradients())
    good = worker.state_dict()
    first = next(iter(good["tensors"]))
    one = good["tensors"][first]
    changed = [{key: value for key, value in one.items() if key != gone} for gone in one]
    changed += [
        {**one, key: bad}
        for key, bad in {"shape": [-1], "dtype": "I32", "step": "x", "state": 3}.items()
    ]
    changed.append({**one, "state": {"residual": one["state"]["residual"] * np.nan}})
    damaged = [{**good, "tensors": {first: fields}} for fields in changed]
    for state in [None, {}, {**good, "tensors": 3}, {**good, "step": "x"}, *damaged]:
        with pytest.raises(GradientError) as caught:
            worker.load_state_dict(state)
        assert "\n" not in str(caught.value)
    assert same(residuals(worker), {n: t["state"]["residual"] for n, t in good["tensors"].items()})
