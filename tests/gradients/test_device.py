"""Tensors on a device, here the CPU, give the bytes and states that arrays give."""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.codecs.sparse.randomk import RandomK as RandomKCodec
from tensorcomp.errors import CodecError, TensorcompError
from tensorcomp.gradients import Dense, ErrorFeedback, GradientSpec, Payload, TreeCompressor
from tensorcomp.gradients.compressors.powersgd import PowerSgd
from tensorcomp.gradients.compressors.randomk import RandomK
from tensorcomp.gradients.compressors.stochastic import Qsgd
from tensorcomp.gradients.cuda.on_device import on_device
from tensorcomp.gradients.cuda.selection import drawn_positions, largest_positions
from tensorcomp.gradients.payload.arrays import move, move_to_host
from tensorcomp.gradients.wrappers.momentum import MomentumCorrection

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
TREES = (
    "topk(0.01)",
    "topk(0.01, values=affine(8))",
    'topk(0.2, values=cast("F16"), mask=bitpack)',
    "topk(0)",
    "topk(100000000)",
    "threshold(2.5)",
    "threshold(0.0, values=raw)",
    "affine(8)",
    "affine(4, 128)",
    "affine(2, 7)",
    "affine(8, 0)",
    "affine(8, -1)",
    "affine(4, 128, false)",
    "affine(4, 13, false, codes=ans(contexts=8))",
    "sign",
    "sign(0)",
    "sign(5)",
    'cast("F16")',
    'cast("BF16")',
)
SHAPES = ((), (1,), (0,), (3, 0), (7,), (300, 17), (64, 3, 3, 3), (1 << 14,))


def gradient_of(shape, dtype=np.float32, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_t(3, shape).astype(dtype).reshape(shape)


def same_step(text_or_compressor, gradient, *, spec=None):
    """Step both ways, and compare payloads, what was sent, and what is decoded."""
    plain = text_or_compressor
    if isinstance(plain, str):
        plain = TreeCompressor.of(plain)
    spec = spec or GradientSpec("w", gradient.shape, gradient.dtype)
    device = on_device(plain, CPU)
    payload, _ = plain.step(gradient, plain.init(spec))
    found, _ = device.step(torch.from_numpy(gradient.copy()), device.init(spec))
    assert found.data == payload.data
    expected = plain.decode(payload)
    out = torch.zeros(spec.size, dtype=torch.from_numpy(expected.reshape(-1)).dtype)
    found.decoded.add_to(out, 1.0)
    assert out.numpy().tobytes() == expected.tobytes()
    received = device.decode(Payload(payload.data, spec))
    assert received.shape == expected.shape
    assert received.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tree", TREES)
def test_bytes_are_those_of_arrays(tree, shape):
    same_step(tree, gradient_of(shape))


@pytest.mark.parametrize("tree", ["topk(0.01)", "affine(4, 13)", "sign", 'cast("F16")'])
def test_bytes_are_those_of_arrays_in_double_precision(tree):
    same_step(tree, gradient_of((300, 17), np.float64))


@pytest.mark.parametrize(
    "tree",
    [
        "topk(0.01, values=affine(8), mask=gaps)",
        "affine(4, 128)",
        "affine(4, 100)",
        "affine(8, 0, codes=huffman(contexts=8))",
        "sign",
        'cast("F16")',
    ],
)
@pytest.mark.parametrize("shape", [(2_200_000,), (3, 500_000), (1100, 2100)], ids=str)
def test_bytes_of_several_chunks_are_those_of_arrays(tree, shape):
    same_step(tree, gradient_of(shape))


def test_what_no_codec_takes_goes_as_it_is():
    gradient = gradient_of((200, 15_000), seed=1)
    gradient[199, 3] = 1e6  # beyond the largest F16, in the last of three chunks
    same_step('cast("F16")', gradient)


def test_equal_magnitudes_are_kept_by_their_index():
    flat = torch.tensor([1.0, -2.0, 2.0, -2.0, 0.5, 2.0])
    assert largest_positions(flat, 3).tolist() == [1, 2, 3]
    assert largest_positions(flat, 5).tolist() == [0, 1, 2, 3, 5]
    assert largest_positions(torch.zeros(5), 2).tolist() == [0, 1]


def test_the_largest_are_found_where_a_sample_misleads():
    flat = torch.linspace(0.5, 0.0, 1 << 16)
    flat[:8000:4] = 1.0  # one in eight of what is sampled, and nothing else
    expected = np.argsort(-flat.numpy(), kind="stable")[:5000]
    assert largest_positions(flat, 5000).tolist() == sorted(expected.tolist())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-3, 3, width=16), min_size=1, max_size=60),
    st.sampled_from([tree for tree in TREES if "sign" not in tree]),
)
def test_any_values_give_the_bytes_of_arrays(values, tree):
    same_step(tree, np.array(values, np.float32))


@pytest.mark.parametrize("count", [0, 1, 50, 4999, 5000])
def test_drawn_places_are_those_of_the_codec(count):
    size, key = 5000, (1 << 63) + 12345
    numbered = np.arange(1, size + 1, dtype=np.float32)
    parts = RandomKCodec(count, key).encode(numbered)
    places, numbers = drawn_positions(key, size, count, CPU)
    assert places.tolist() == (parts["values"] - 1).tolist()
    assert int(parts["state"][2]) == max((n % (1 << 64) for n in numbers.tolist()), default=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tree", ["topk(0.05, values=affine(8))", "affine(2, 128)"])
def test_residuals_are_those_of_arrays(tree, dtype):
    plain = ErrorFeedback(TreeCompressor.of(tree), dtype, 0.9)
    check_steps(plain, (40, 50))


@pytest.mark.parametrize("nesterov", [False, True])
def test_velocities_are_those_of_arrays(nesterov):
    inner = ErrorFeedback(TreeCompressor.of("topk(0.05)"))
    check_steps(MomentumCorrection(inner, 0.9, nesterov=nesterov), (40, 50), idle=2)


def check_steps(plain, shape, idle=None):
    """Compare payloads and states over some steps, one of them with a gradient of zeros."""
    spec = GradientSpec("w", shape)
    device = on_device(plain, CPU)
    assert device.text() == plain.text()
    assert device.reduction == plain.reduction
    state, other = plain.init(spec), device.init(spec)
    for step in range(4):
        gradient = gradient_of(shape, seed=step) * (step != idle)
        payload, state = plain.step(gradient, state)
        found, other = device.step(torch.from_numpy(gradient), other)
        assert found.data == payload.data
        assert_same_state(move_to_host(other), state)


def assert_same_state(one, other):
    assert type(one) is type(other)
    for name in vars(one):
        left, right = getattr(one, name), getattr(other, name)
        if name == "inner":
            assert_same_state(left, right)
        elif isinstance(left, np.ndarray) and name != "spare":
            assert left.dtype == right.dtype
            assert left.tobytes() == right.tobytes()


def test_a_dropped_state_can_be_stepped_again():
    spec = GradientSpec("w", (100,))
    device = on_device(ErrorFeedback(TreeCompressor.of("topk(0.1)")), CPU)
    _, state = device.step(torch.from_numpy(gradient_of(100, seed=1)), device.init(spec))
    before = state.residual.clone()
    dropped, _ = device.step(torch.from_numpy(gradient_of(100, seed=2)), state)
    assert torch.equal(state.residual, before)
    again, _ = device.step(torch.from_numpy(gradient_of(100, seed=2)), state)
    assert again.data == dropped.data


def ended(phases):
    """Run phases of one worker to their end; return what was yielded, and what they end with."""
    yielded = []
    try:
        array = next(phases)
        while True:
            yielded.append(array)
            array = phases.send(array)
    except StopIteration as end:
        return yielded, end.value


@pytest.mark.parametrize("scale", [True, False])
def test_random_elements_are_those_of_arrays(scale):
    plain = RandomK(0.1, seed=3, scale=scale)
    gradient = gradient_of((30, 40))
    spec = GradientSpec("w", gradient.shape)
    device = on_device(plain, CPU)
    sums, (mean, _, state) = ended(plain.phases(gradient, plain.init(spec)))
    found, (other, sent, following) = ended(
        device.phases(torch.from_numpy(gradient), device.init(spec))
    )
    assert [one.numpy().tobytes() for one in found] == [one.tobytes() for one in sums]
    assert other.numpy().tobytes() == mean.tobytes()
    assert sent.count == 120
    assert following.count == state.count == 1


def test_factors_are_close_to_those_of_arrays():
    plain = PowerSgd(3)
    gradient = gradient_of((30, 40))
    spec = GradientSpec("w", gradient.shape)
    device = on_device(plain, CPU)
    state, other = plain.init(spec), device.init(spec)
    for _ in range(3):
        _, (mean, sent, state) = ended(plain.phases(gradient, state))
        _, (found, other_sent, other) = ended(device.phases(torch.from_numpy(gradient), other))
        np.testing.assert_allclose(found.numpy(), mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(other_sent.values.numpy(), sent.values, rtol=1e-4, atol=1e-5)
    assert move_to_host(other).right.shape == state.right.shape


def test_factors_of_zeros_are_finite():
    device = on_device(PowerSgd(2), CPU)
    spec = GradientSpec("w", (8, 9))
    _, (mean, _, state) = ended(device.phases(torch.zeros(8, 9), device.init(spec)))
    assert not mean.any()
    assert state.right.isfinite().all()


def test_dense_gradients_are_summed_as_they_are():
    device = on_device(Dense(), CPU)
    gradient = torch.from_numpy(gradient_of(10))
    sums, (mean, sent, _) = ended(device.phases(gradient, device.init(GradientSpec("w", (10,)))))
    assert torch.equal(sums[0], gradient)
    assert torch.equal(mean, gradient)
    assert sent.count == 10


@pytest.mark.parametrize(
    "plain",
    [
        Qsgd(4),
        TreeCompressor.of("floats"),
        TreeCompressor.of('cast("F8_E4M3")'),
        ErrorFeedback(TreeCompressor.of("uniform(0.1)")),
    ],
    ids=lambda plain: plain.text(),
)
def test_others_have_no_counterpart(plain):
    assert on_device(plain, CPU) is None


def test_states_go_and_come_back():
    plain = ErrorFeedback(TreeCompressor.of("topk(0.1)"), "bfloat16")
    state = plain.init(GradientSpec("w", (5,)))
    state.residual[:] = np.arange(5)
    moved = move(state, "cpu")
    assert moved.residual.dtype == torch.bfloat16
    back = move_to_host(moved)
    assert back.residual.dtype == ml_dtypes.bfloat16
    assert back.residual.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("tree", ["topk(0.1)", "affine(4, 8)", "sign", 'cast("F16")'])
def test_damaged_payloads_are_refused(tree):
    device = on_device(TreeCompressor.of(tree), CPU)
    spec = GradientSpec("w", (64,))
    payload, _ = device.step(torch.from_numpy(gradient_of(64)), device.init(spec))
    for index in range(0, len(payload.data), 7):
        damaged = bytearray(payload.data)
        damaged[index] ^= 0x10
        with pytest.raises(TensorcompError):
            device.receive(Payload(bytes(damaged), spec))


def test_codes_beyond_their_width_are_refused():
    wide = TreeCompressor.of("affine(8, 8)")
    spec = GradientSpec("w", (64,))
    payload, _ = wide.step(gradient_of(64), wide.init(spec))
    # Both trees store codes of a byte here: bitpack writes its own width.
    with pytest.raises(CodecError, match="4 bits"):
        on_device(TreeCompressor.of("affine(4, 8)"), CPU).receive(Payload(payload.data, spec))


def test_nothing_stands_for_zeros():
    device = on_device(TreeCompressor.of("affine(4, 8)"), CPU)
    assert not device.decode(Payload(b"", GradientSpec("w", (3, 2)))).any()
