from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import GradientError
from tensorcomp.gradients.autotune.link_estimate import LinkEstimate
from tensorcomp.gradients.cost_model.model import Link

SMALL = (64, 1e3, 1e4, 1e5, 1e6)


def timed(link, nbytes, messages, random=None, delayed=0.0):
    """Return the seconds of a collective, of which some are held up."""
    seconds = messages * link.latency + nbytes / link.bandwidth
    if random is None:
        return seconds
    seconds *= 1 + 0.05 * abs(random.normal())
    return seconds * random.uniform(2, 10) if random.random() < delayed else seconds


def fed(estimate, link, sizes, messages=2, **noise):
    for nbytes in sizes:
        estimate = estimate.observe(nbytes, timed(link, nbytes, messages, **noise), messages)
    return estimate


@given(st.floats(1e5, 1e10), st.floats(1e-6, 1e-2), st.integers(1, 20))
def test_exact_times_give_the_link(bandwidth, latency, messages):
    link = Link(bandwidth, latency)
    found = fed(LinkEstimate(), link, [1, *SMALL, 1e9], messages).link()
    sizes = np.array([1, *SMALL, 1e9])
    expected = [timed(link, size, messages) for size in sizes]
    np.testing.assert_allclose([timed(found, n, messages) for n in sizes], expected, rtol=0.02)


def test_delays_of_a_fifth_of_the_collectives_do_not_matter():
    random = np.random.default_rng(0)
    link = Link(1.2e8, 1e-4)
    found = fed(LinkEstimate(), link, SMALL * 6, random=random, delayed=0.2).link()
    assert found.bandwidth == pytest.approx(1.2e8, rel=0.15)
    assert found.latency == pytest.approx(1e-4, rel=0.15)


def test_a_bandwidth_that_changes_is_followed():
    random = np.random.default_rng(1)
    noise = {"random": random, "delayed": 0.2}
    fast, slow = Link(1.2e8, 1e-4), Link(1.2e7, 1e-4)
    estimate = fed(LinkEstimate(), fast, [*SMALL, *[2.5e7] * 40], **noise)
    assert estimate.link().bandwidth == pytest.approx(1.2e8, rel=0.2)
    estimate = fed(estimate, slow, [2.5e7] * 12, **noise)
    assert estimate.link().bandwidth == pytest.approx(1.2e7, rel=0.2)
    assert estimate.link().latency == pytest.approx(1e-4, rel=0.3)  # as it was seen with small ones
    estimate = fed(estimate, fast, [8e4] * 24, **noise)
    assert estimate.link().bandwidth == pytest.approx(1.2e8, rel=0.4)


def test_collectives_of_one_size_tell_the_bandwidth():
    found = fed(LinkEstimate(), Link(1e6, 0.1), [1e5] * 5, messages=1).link()
    assert found == Link(1e6 / 2, 0.0)


def test_messages_without_bytes_tell_the_latency():
    found = fed(LinkEstimate(), Link(1e6, 0.1), [0] * 3, messages=4).link()
    assert found.latency == pytest.approx(0.1)
    assert found.bandwidth == math.inf


def test_few_observations_are_kept():
    estimate = fed(LinkEstimate(), Link(1e8, 1e-4), [*SMALL * 40])
    assert estimate.count == 200
    assert len(estimate.observations) <= 16 * len(SMALL)
    assert LinkEstimate().link() is None


def test_clocks_that_stand_still_and_collectives_of_nobody():
    assert LinkEstimate().observe(1e6, 0.0).link().bandwidth >= 1e14
    alone = LinkEstimate().observe(0, 0.1, messages=0)
    assert alone.link() is None


@pytest.mark.parametrize("figures", [(-1, 1.0), (1, -1.0), (math.nan, 1.0), (1, math.inf)])
def test_refusals(figures):
    with pytest.raises(GradientError, match="tells nothing of a link"):
        LinkEstimate().observe(*figures)
