import math

import numpy as np
import pytest

from tensorcomp.codecs.strategy import Strategy
from tensorcomp.codecs.text import format_tree
from tensorcomp.errors import PlanError
from tensorcomp.pipeline.strategies import own_strategy, strategies, strategy_tree
from tensorcomp.planning.trials import run_trial


def test_labels_are_their_own_and_trees_parse():
    labels = [strategy.label for strategy in strategies()]
    assert len(set(labels)) == len(labels)
    for strategy in strategies():
        tree = strategy_tree(strategy, 0.02)
        assert (tree is None) == (not strategy.template)
        assert tree is None or strategy.template.split("(")[0] in format_tree(tree)


@pytest.mark.parametrize("bits", [3, 5])
def test_bits_are_what_gaussian_weights_take(bits):
    sample = np.random.default_rng(1).normal(0, 0.3, (256, 256)).astype(np.float32)
    tree = strategy_tree(Strategy("u", "uniform($step)", bits), 0.3)
    assert tree is not None
    trial = run_trial(tree, sample)
    assert trial is not None
    assert trial.bits == pytest.approx(bits, abs=0.06)


@pytest.mark.parametrize("scale", [0.0, 5e-324, 1e-300, 1e300])
def test_any_scale_gives_a_tree(scale):
    tree = strategy_tree(Strategy("u", "uniform($step)", 4), scale)
    assert tree is not None
    assert 0 < tree.codec.config()["step"] < math.inf


def test_what_is_not_installed_is_left_out():
    assert not Strategy("x", "raw", needs="no_such_module_anywhere").available()
    assert Strategy("x", "raw", needs="numpy").available()


def test_own_strategies():
    assert own_strategy("affine(4, 64)").label == "affine(4, 64)"
    assert own_strategy("$quantizer").label == "$quantizer, 4 bits"
    assert strategy_tree(own_strategy("$quantizer"), 1.0) is not None
    with pytest.raises(PlanError):
        own_strategy("nonesuch(3)")
