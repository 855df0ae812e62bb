import numpy as np
import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.reduce_scatter import ReduceScatter

SPEC = GradientSpec("w", (300, 7))


def test_the_recipe_reduces_by_owners_what_would_be_gathered():
    gathered = parse_compressor("topk(0.01)")
    owned = parse_compressor("owners(topk(0.01))")
    assert (gathered.reduction, owned.reduction) == ("gather", "reduce_scatter")
    assert owned == ReduceScatter(gathered)
    assert owned.text() == f"owners({gathered.text()})"


def test_payloads_and_states_are_those_of_what_is_inside():
    gathered = parse_compressor("topk(0.01)")
    owned = ReduceScatter(gathered)
    gradient = np.random.default_rng(0).standard_normal(SPEC.shape).astype(np.float32)
    one, left = gathered.step(gradient, gathered.init(SPEC))
    other, other_left = owned.step(gradient, owned.init(SPEC))
    assert one == other
    assert np.array_equal(left.residual, other_left.residual)
    assert np.array_equal(owned.decode(other), gathered.decode(one))


def test_what_is_summed_is_summed_still():
    assert ReduceScatter(Dense()).reduction == "sum"
    low_rank = parse_compressor("owners(powersgd(2))")
    assert low_rank.reduction == "sum"
    gradient = np.ones(SPEC.shape, np.float32)
    phases = low_rank.phases(gradient, low_rank.init(SPEC))
    right = phases.send(next(phases))
    with pytest.raises(StopIteration) as end:
        phases.send(right)
    assert np.allclose(end.value.value[0], gradient, rtol=1e-5)


def test_what_decides_inside_still_decides():
    warm = parse_compressor("owners(warmup(topk(0.01), steps=5))")
    assert warm.at(StepInfo(0), SPEC).reduction == "sum"
    assert warm.at(StepInfo(10**6), SPEC).reduction == "reduce_scatter"


def test_the_recipe_needs_something_inside():
    with pytest.raises(
        GradientError, match="owners: expected the text of an inner compressor, got none"
    ):
        parse_compressor("owners()")
