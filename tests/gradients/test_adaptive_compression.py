import math
from typing import Any

import numpy as np
import pytest
import ranks
import torch

from tensorcomp.errors import GradientError
from tensorcomp.gradients.autotune.adaptive import Adaptive
from tensorcomp.gradients.base import GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.ddp.autotuner import Autotuner
from tensorcomp.gradients.ddp.coding_groups import lay_out
from tensorcomp.gradients.ddp.communicator import Exchange
from tensorcomp.gradients.ddp.observers import Step
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback

TOPK, INT8 = "topk(0.01, values=affine(8))", "int8"
A, B = GradientSpec("a", (100, 100)), GradientSpec("b", (16,))
SPECS = [A, B]


def adaptive(*texts: str, **options) -> Adaptive:
    found = {text: parse_compressor(text, feedback=False) for text in texts or (TOPK, INT8)}
    return Adaptive(found, **options)


def test_plans_are_one_for_each_candidate_after_dense():
    dense = {"a": "dense", "b": "dense"}
    assert adaptive().plans(SPECS, [{}]) == [dense, {**dense, "a": TOPK}, {**dense, "a": INT8}]
    assert adaptive("dense", INT8).plans(SPECS, [{}]) == [dense, {**dense, "a": INT8}]
    assert adaptive().plans([B], [{}]) == [{"b": "dense"}]


def test_plans_keep_the_bound_of_every_tensor():
    bounded = adaptive(max_rel_l2=0.1)
    specs = [A, GradientSpec("c", (5000,))]
    errors = {TOPK: {"a": 0.9, "c": 0.05}, INT8: {"a": 0.01, "c": 0.2}}
    found = bounded.plans(specs, [errors])
    better = {TOPK: {"a": 0.01, "c": 0.01}, INT8: {"a": 0.01, "c": 0.01}}
    assert bounded.plans(specs, [better, errors]) == found
    assert found[1:] == [{"a": INT8, "c": TOPK}, {"a": INT8, "c": "dense"}]
    for unknown in ({}, {TOPK: {"a": math.nan}}):
        assert bounded.plans([A], [unknown]) == [{"a": "dense"}]


def test_adaptive_uses_what_was_chosen():
    found = adaptive()
    assert found.at(StepInfo(), A) == Dense()
    info = StepInfo(5, choices={"a": TOPK, "b": "dense"})
    assert found.at(info, A) is found.candidates[TOPK]
    assert found.at(info, B) == Dense()
    assert found.at(StepInfo(5, choices={"a": "of another run"}), A) == Dense()
    assert ErrorFeedback(found).at(info, A).inner is found.candidates[TOPK]


def test_when_it_is_due():
    assert [step for step in range(20) if adaptive(every=5).is_due(step)] == [8, 13, 18]


@pytest.mark.parametrize("text", ["adaptive(int8, max_rel_l2=0.1)", "adaptive(topk(0.1), fp16)"])
def test_texts_are_read_back(text):
    found = parse_compressor(text)
    assert isinstance(found, ErrorFeedback)
    assert parse_compressor(found.text()) == found


def test_the_default_candidates_are_those_of_the_text():
    texts = f"{TOPK}, affine(4, 128), affine(8, 128), fp16"
    assert parse_compressor(f"adaptive({texts})") == ErrorFeedback(Adaptive())
    assert Adaptive().text() == f"adaptive({texts}, every=20, hysteresis=0.1)"
    assert not Adaptive().unbiased


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        ("warmup(topk(0.1), steps=3)", "decides itself"),
        ("randomk(0.1)", "scale=false"),
        ("nonesuch(3)", "nonesuch"),
    ],
)
def test_what_cannot_be_a_candidate(candidate, words):
    with pytest.raises(GradientError, match=words):
        parse_compressor(f"adaptive({candidate})")


# --- on ranks ----------------------------------------------------------------------------------


class _Wire:
    """One of two ranks, whose other one measures the same, or twice the errors; a clock."""

    world = 2
    other = 1.0

    def __init__(self) -> None:
        self.seconds = 0.01
        self.gathers: list[str] = []

    def probe(self, nbytes: int) -> Exchange:
        return Exchange("all_gather", nbytes, nbytes, self.seconds)

    def all_gather_values(self, value: Any, key: str) -> list[Any]:
        self.gathers.append(key)
        if key != "errors":
            return [value, value]
        more = {t: {n: self.other * e for n, e in one.items()} for t, one in value.items()}
        return [value, more]


class _Training:
    """Steps whose seconds depend on the choices alone."""

    def __init__(self, monkeypatch, found: Adaptive, seconds: dict[str, float]) -> None:
        self.wire = _Wire()
        self.tuner = Autotuner(found, SPECS, self.wire)
        self.seconds = seconds
        self.step = 0
        self.now = 0.0
        self.flagged: set[int] = set()
        monkeypatch.setattr(
            "tensorcomp.gradients.ddp.autotuner.time.perf_counter", lambda: self.now
        )
        values = np.random.default_rng(0).standard_normal(10_016).astype(np.float32)
        self.values = values
        self.layout = lay_out(SPECS, [Dense(), Dense()], join_small=True)

    def run(self, steps: int) -> list[str]:
        """Return what was chosen for the first parameter at each step."""
        used = []
        for _ in range(steps):
            choice = self.tuner.choices.get("a", "dense")
            used.append(choice)
            step = Step(StepInfo(self.step, choices=self.tuner.choices))
            if self.tuner.wants(step):
                self.tuner.loaded(step, self.layout, self.values)
                step.flagged = self.step in self.flagged
                self.tuner.ended(step)
            self.now += self.seconds[choice]
            self.step += 1
        return used


def test_the_fastest_candidate_is_kept(monkeypatch):
    training = _Training(monkeypatch, adaptive(), {"dense": 1.0, TOPK: 0.7, INT8: 0.5})
    used = training.run(60)
    assert used[:9] == ["dense"] * 9
    assert set(used[9:24]) == {"dense", TOPK, INT8}
    assert set(used[26:]) == {INT8}
    assert training.tuner.choices == {"a": INT8, "b": "dense"}


def test_what_is_slower_than_dense_is_not_kept(monkeypatch):
    training = _Training(monkeypatch, adaptive(), {"dense": 1.0, TOPK: 9.0, INT8: 0.95})
    used = training.run(100)
    assert set(used[26:]) == {"dense"}
    assert used.count(TOPK) <= 6


def test_it_is_tried_again_when_the_link_changes(monkeypatch):
    training = _Training(monkeypatch, adaptive(), {"dense": 1.0, TOPK: 2.0, INT8: 2.0})
    assert set(training.run(50)[26:]) == {"dense"}
    training.wire.seconds, training.seconds = 0.1, {"dense": 10.0, TOPK: 2.0, INT8: 4.0}
    assert set(training.run(50)[-10:]) == {TOPK}
    training.wire.seconds = 0.11
    assert set(training.run(50)) == {TOPK}
    training.wire.seconds, training.seconds = 0.01, {"dense": 1.0, TOPK: 2.0, INT8: 2.0}
    assert set(training.run(50)[-10:]) == {"dense"}
    assert training.wire.gathers.count("step times") == 3


def test_what_is_used_stays_for_a_small_gain(monkeypatch):
    training = _Training(monkeypatch, adaptive(), {"dense": 1.0, TOPK: 0.5, INT8: 0.6})
    training.run(50)
    training.wire.seconds, training.seconds = 0.1, {"dense": 1.0, TOPK: 0.5, INT8: 0.47}
    assert set(training.run(50)[-10:]) == {TOPK}
    training.wire.seconds, training.seconds = 1.0, {"dense": 1.0, TOPK: 0.5, INT8: 0.4}
    assert set(training.run(50)[-10:]) == {INT8}


def test_the_bound_is_kept_on_every_rank(monkeypatch):
    seconds = {"dense": 1.0, TOPK: 0.1, INT8: 0.5}
    training = _Training(monkeypatch, adaptive(max_rel_l2=0.012), seconds)
    assert set(training.run(60)) == {"dense", INT8}
    training = _Training(monkeypatch, adaptive(max_rel_l2=0.012), seconds)
    training.wire.other = 2.0
    assert set(training.run(60)) == {"dense"}


def test_skipped_steps_put_decisions_off(monkeypatch):
    training = _Training(monkeypatch, adaptive(every=4), {"dense": 1.0, TOPK: 0.7, INT8: 0.5})
    training.flagged = {8, 28, 29}
    assert set(training.run(60)[31:]) == {INT8}


def test_choices_that_were_saved_are_used_until_the_next_test(monkeypatch):
    training = _Training(monkeypatch, adaptive(), {"dense": 1.0, TOPK: 0.7, INT8: 0.5})
    training.tuner.restore({"a": TOPK, "b": "dense"})
    assert training.run(9) == [TOPK] * 9


def _agreed() -> dict[str, str]:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from tensorcomp.gradients import compress_gradients

    model = DistributedDataParallel(nn.Linear(300, 200))
    with compress_gradients(model, f"adaptive({TOPK}, int8, max_rel_l2=0.1)") as compression:
        for step in range(25):
            model.zero_grad()
            model(torch.full((2, 300), 1.0 + step)).sum().backward()
        return dict(compression.choices)


def test_ranks_choose_alike():
    results = ranks.run(_agreed)
    assert results[0] == results[1]
    assert results[0]["weight"] != TOPK
