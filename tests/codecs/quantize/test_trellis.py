"""`trellis`: the best path, its rate on Gaussian weights, and the contexts that `ans` gives it."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_cases import size_of

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.entropy.ans import TRELLIS_STATES, Ans
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.quantize.trellis import Trellis
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

LANES = 64
POLYNOMIALS = {4: (0o5, 0o2), 8: (0o13, 0o4), 16: (0o23, 0o4), 32: (0o45, 0o10)}  # by states


def quantizers_of(codes, states):
    """Return the quantizer of each element of a flat array, by the machine's definition."""
    feedback, forward = POLYNOMIALS[states]
    lanes = [0] * LANES
    found = []
    for i, code in enumerate(codes.reshape(-1).tolist()):
        state = lanes[i % LANES]
        quantizer, parity = state & 1, code & 1
        found.append(quantizer)
        state >>= 1
        state ^= (feedback >> 1) if quantizer else 0
        lanes[i % LANES] = state ^ ((forward >> 1) if parity else 0)
    return np.array(found, np.uint8).reshape(codes.shape)


def values_of(codes, states):
    return codes - quantizers_of(codes, states) / 2


def least_errors(rows, states):
    """Return the least sum of squares of each lane, over all sequences of parities."""
    best = np.full(LANES, np.inf)
    for parities in itertools.product((0, 1), repeat=len(rows)):
        codes = np.empty((len(rows), LANES), np.int64)
        state = 0
        feedback, forward = POLYNOMIALS[states]
        for i, parity in enumerate(parities):
            quantizer = state & 1
            codes[i] = 2 * np.rint((rows[i] + quantizer / 2 - parity) / 2) + parity
            state = (state >> 1) ^ (quantizer * (feedback >> 1))
            state ^= parity * (forward >> 1)
        error = ((values_of(codes, states) - rows) ** 2).sum(axis=0)
        best = np.minimum(best, error)
    return best


@pytest.mark.parametrize("states", POLYNOMIALS)
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_no_sequence_of_codes_is_better(states, length):
    rows = np.random.default_rng(length).normal(0, 3, (length, LANES))
    codes = Trellis(1.0, states).encode(rows)["codes"]
    errors = ((values_of(codes, states) - rows) ** 2).sum(axis=0)
    # Costs are rounded to 1/2048 of the largest.
    assert (errors <= least_errors(rows, states) + length / 2048).all()


@pytest.mark.parametrize("states", TRELLIS_STATES)
def test_every_state_follows_two_and_leads_to_two(states):
    feedback, forward = POLYNOMIALS[states]
    followers = [
        (s >> 1) ^ ((s & 1) * (feedback >> 1)) ^ (z * (forward >> 1))
        for s in range(states)
        for z in (0, 1)
    ]
    assert sorted(followers) == sorted([*range(states), *range(states)])


@pytest.mark.parametrize(("states", "gap"), [(4, 0.1), (8, 0.085), (16, 0.075), (32, 0.065)])
@pytest.mark.parametrize("step", [1.4, 0.5, 0.0625])
def test_rate_on_gaussian_weights(step, states, gap):
    array = np.random.default_rng(5).standard_normal((512, 1024)).astype(np.float32)
    coder = f"ans(contexts=16, states=12, trellis={states}, bypass=true)"
    node = parse_tree(f"trellis({step}, {states}, codes={coder})")
    payload = join(encode(node, array))
    error = decode(node, payload, spec_of(array)) - array.astype(np.float64)
    limit = np.log2((array.astype(np.float64) ** 2).mean() / (error**2).mean()) / 2
    assert 8 * len(payload) / array.size - limit < gap


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(), (1,), (0, 3), (63,), (64,), (65,), (300,), (17, 31), (3, 5, 40)]),
    dtype=st.sampled_from([np.float64, np.float32, np.float16, ml_dtypes.bfloat16]),
    states=st.sampled_from(TRELLIS_STATES),
    exponent=st.integers(-3, 3),
)
def test_decoded_values_are_those_of_the_codes(seed, shape, dtype, states, exponent):
    step = 2.0**exponent
    array = np.asarray(np.random.default_rng(seed).normal(0, 5 * step, shape)).astype(dtype)
    codec = Trellis(step, states)
    parts = codec.encode(array)
    out = np.empty_like(array)
    codec.decode(parts, out)
    points = 2 * parts["codes"].astype(np.int64) - quantizers_of(parts["codes"], states)
    below = np.zeros(int(np.abs(points).max(initial=0)) + 20)
    below[1 : parts["centroids"].size + 1] = parts["centroids"] / 256
    wanted = np.sign(points) * (np.abs(points) / 2 - below[np.abs(points)]) * step
    assert out.tobytes() == wanted.astype(dtype).tobytes()
    error = np.abs(points / 2 * step - array.astype(np.float64))
    assert error.max(initial=0) <= step * (1 + 1e-6)


def test_steps_without_an_inverse_are_refused():
    for step in (1e-41, 5e-324):
        with pytest.raises(NotRepresentable, match="too small"):
            Trellis(step).encode(np.ones(4, np.float32))


def test_far_elements_are_refused_and_near_ones_are_not():
    array = np.array([-32_766.0, 32_766.0, 0.25] * 30, np.float32)
    codec = Trellis(1.0)
    out = np.empty_like(array)
    codec.decode(codec.encode(array), out)
    assert np.abs(out - array).max() <= 1
    for wrong in (array + 2, array.astype(np.int64), array * np.nan):
        with pytest.raises(NotRepresentable):
            codec.encode(wrong)


@pytest.mark.parametrize("states", [0, 2, 6, 64, 8.0, True, "8"])
def test_other_numbers_of_states_are_refused(states):
    with pytest.raises(ValueError, match="expected states to be one of 4, 8, 16, 32, got"):
        Trellis(1.0, states)
    with pytest.raises(ValueError, match="expected trellis to be one of 0, 4"):
        Ans(trellis=states or None)


def test_too_many_centroids_are_damage():
    parts = {"codes": np.zeros(99, np.int16), "centroids": np.zeros(17, np.int8)}
    with pytest.raises(CodecError, match="at most 16 centroids, got 17"):
        Trellis(1.0).decode(parts, np.empty(99, np.float32))


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from([np.int8, np.uint8, np.int16, np.uint16, np.float16, np.int32]),
    shape=st.sampled_from([(1,), (15,), (16,), (17,), (64,), (127,), (40, 33), (5, 300)]),
    spread=st.sampled_from([0.6, 3, 40, 3000]),
    contexts=st.sampled_from([1, 4, 16]),
    width=st.integers(9, 12),
    states=st.sampled_from(TRELLIS_STATES),
    bypass=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_ans_restores_every_array(dtype, shape, spread, contexts, width, states, bypass, seed):
    rng = np.random.default_rng(seed)
    array = rng.normal(0, spread, shape).round()
    array[rng.random(shape) < 0.01] *= 7  # escaped symbols
    flag = str(bypass).lower()
    array = array.astype(np.int64).astype(dtype)
    size_of(f"ans({contexts}, {width}, trellis={states}, bypass={flag})", array)


@pytest.mark.parametrize("states", TRELLIS_STATES)
def test_ans_tells_quantizers_apart(states):
    # Quantizer 0 gives 0, 2, 4, … and quantizer 1 gives 1, 3, 5 …: alike parities would tell more.
    rng = np.random.default_rng(states)
    codes = np.zeros((300, LANES), np.int16)
    lanes = np.zeros(LANES, np.int64)
    feedback, forward = POLYNOMIALS[states]
    for i in range(len(codes)):
        quantizer = lanes & 1
        codes[i] = rng.integers(0, 4, LANES) + np.where(quantizer, 40, -40)
        parity = codes[i] & 1
        lanes = (lanes >> 1) ^ (quantizer * (feedback >> 1))
        lanes ^= parity * (forward >> 1)
    told = size_of(f"ans(trellis={states})", codes)
    assert told < size_of("ans", codes) - 0.9 * codes.size / 8
    assert 8 * told / codes.size < 2.05


@pytest.mark.parametrize("bits", [3, 8, 13])
def test_low_bits_go_past_the_coder(bits):
    array = np.random.default_rng(bits).normal(0, 2**bits / 4, (400, 300)).round().astype(np.int16)
    plain = size_of("ans(contexts=16, states=12)", array)
    assert size_of("ans(contexts=16, states=12, bypass=true)", array) <= 1.0005 * plain
    ideal = np.log2(2**bits / 4 * np.sqrt(2 * np.pi * np.e))
    assert 8 * size_of("ans(states=12, bypass=true)", array) / array.size < ideal + 0.025


def continued(values, step, states, lengths, ahead=0):
    """Return codes and points of values coded in pieces; `ahead` of the next are looked at."""
    machines, codes, points, start = np.zeros(LANES, np.uint8), [], [], 0
    for length in lengths:
        stop = min(start + length, values.size)
        piece = values[start : min(stop + ahead, values.size)]
        found, places = np.empty(stop - start, np.int16), np.empty(stop - start, np.int32)
        assert native.trellis_continue(piece, 32768 / step, states, machines, found, places)
        codes.append(found)
        points.append(places)
        start = stop
    assert start == values.size
    return np.concatenate(codes), np.concatenate(points)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    states=st.sampled_from(TRELLIS_STATES),
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=12),
    ahead=st.sampled_from([0, 1, 64, 200]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_pieces_of_any_length_are_one_sequence(seed, states, lengths, ahead, dtype):
    values = np.random.default_rng(seed).normal(0, 5, sum(lengths)).astype(dtype)
    codes, points = continued(values, 1.0, states, lengths, ahead)
    assert (points == 2 * codes.astype(np.int64) - quantizers_of(codes, states)).all()
    out = np.empty(values.size, np.float32)
    Trellis(1.0, states).decode({"codes": codes, "centroids": np.zeros(0, np.int8)}, out)
    assert (out == points / 2).all()
    assert np.abs(out - values).max(initial=0) <= 1 + 1e-6
    # What it decodes to is coded without further loss, in the same codes.
    again = Trellis(1.0, states).encode(out)
    assert (again["codes"] == codes).all()
    assert again["centroids"].size == 0


@pytest.mark.parametrize("states", TRELLIS_STATES)
def test_looking_ahead_is_better_in_the_mean(states):
    values = np.random.default_rng(states).normal(0, 3, 64_000).astype(np.float32)
    pieces = [100] * 640
    errors = [
        np.square(continued(values, 1.0, states, pieces, ahead)[1] / 2 - values).mean()
        for ahead in (0, 100)
    ]
    whole = np.square(continued(values, 1.0, states, [values.size])[1] / 2 - values).mean()
    assert whole < errors[1] < errors[0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 32_768.0])
def test_pieces_out_of_reach_are_told(wrong):
    values, places = np.array([0, wrong], np.float32), np.empty(2, np.int32)
    machines, codes = np.zeros(LANES, np.uint8), np.empty(2, np.int16)
    assert native.trellis_continue(values, 32768.0, 8, machines, codes, places) == 0
