"""Compression that does not make steps faster is dismissed, and tried again on a slower link."""

from __future__ import annotations

import math

from tensorcomp.gradients.autotune.speedup_test import Proof

SPARSE = {"a": "topk(0.01)", "b": "dense"}
NONE = {"a": "dense", "b": "dense"}


def test_what_pays_stays():
    choices, proof = Proof().judge(SPARSE, {}, 1.0, 0.5)
    assert choices == SPARSE
    assert proof.on_trial
    choices, proof = proof.judge(SPARSE, choices, 0.8, 0.5)
    assert choices == SPARSE
    # Proved once, later steps may be slow for other reasons.
    choices, proof = proof.judge(SPARSE, choices, 3.0, 0.5)
    assert choices == SPARSE


def test_what_does_not_pay_is_dismissed_until_the_link_is_slower():
    choices, proof = Proof().judge(SPARSE, {}, 1.0, 0.5)
    choices, proof = proof.judge(SPARSE, choices, 0.95, 0.5)
    assert choices == NONE
    for exchange in (0.5, 0.6, 0.74):
        choices, proof = proof.judge(SPARSE, choices, 1.0, exchange)
        assert choices == NONE
    choices, proof = proof.judge(SPARSE, choices, 1.0, 0.75)
    assert choices == SPARSE
    assert proof.on_trial


def test_a_link_that_slows_down_during_the_trial_is_no_reason_to_dismiss():
    choices, proof = Proof().judge(SPARSE, {}, 1.0, 0.5)
    choices, proof = proof.judge(SPARSE, choices, 1.2, 5.0)
    assert choices == SPARSE


def test_without_times_the_prediction_is_believed():
    choices, proof = Proof().judge(SPARSE, {}, math.nan, 0.5)
    choices, proof = proof.judge(SPARSE, choices, 9.0, 0.5)
    assert choices == SPARSE
    choices, proof = proof.judge(NONE, choices, 9.0, 0.1)
    assert choices == NONE
    assert not proof.dismissed
