"""Means of messages whose workers are unequal, late, missing, or wrong."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import CodecError, GradientError
from tensorcomp.gradients.base import StepInfo
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.server.aggregation import Aggregator
from tensorcomp.gradients.server.message import Message
from tensorcomp.gradients.server.worker import SERVER, WorkerCompression
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback

F32 = np.float32


def message(worker, values, *, step=0, weight=1.0, name="w", text="dense"):
    """Return a message of one tensor."""
    sender = WorkerCompression(text, worker=worker, weight=weight)
    return sender.compress({name: np.asarray(values, F32)}, info=StepInfo(step))


def mean_of(aggregator, step=0):
    return aggregator.result(step).arrays()["w"].tolist()


# --- means -----------------------------------------------------------------------------------


def test_a_mean_by_hand():
    aggregator = Aggregator()
    assert aggregator.add(message(0, [1.0, 0.0, 8.0], weight=3)) == "counted"
    assert aggregator.add(message(1, [5.0, 4.0, 0.0], weight=1)) == "counted"
    done = aggregator.result(0)
    assert done.arrays()["w"].tolist() == [2.0, 1.0, 6.0]
    assert (done.step, done.workers, done.folded, done.missing) == (0, (0, 1), (), ())
    assert done.weight == 4
    assert aggregator.step == 1
    answer = Message.from_bytes(done.message)
    assert (answer.step, answer.worker) == (0, SERVER)


def test_weights_of_the_server_are_in_place_of_those_in_messages():
    aggregator = Aggregator(workers={0: 3, 1: 1})
    aggregator.add(message(0, [1.0], weight=1e300))
    aggregator.add(message(1, [5.0], weight=1e-300))
    assert mean_of(aggregator) == [2.0]


def test_a_tensor_is_averaged_over_those_who_have_it():
    aggregator = Aggregator()
    aggregator.add(message(0, [8.0], weight=3))
    sender = WorkerCompression("dense", worker=1)
    aggregator.add(sender.compress({"w": np.zeros(1, F32), "b": np.full((2, 2), 3, F32)}))
    found = aggregator.result(0).arrays()
    assert found["w"].tolist() == [6.0]
    assert found["b"].tolist() == [[3.0, 3.0], [3.0, 3.0]]


@given(st.permutations(range(5)), st.sampled_from(["dense", "topk(0.1)", "affine(8)"]))
def test_the_order_of_arrival_does_not_matter(order, text):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(40).astype(F32) for _ in order]
    answers = set()
    for places in (order, range(5)):
        aggregator = Aggregator("topk(0.2)")
        for worker in places:
            aggregator.add(message(worker, values[worker], weight=worker + 0.3, text=text))
        answers.add(aggregator.result(0).message)
    assert len(answers) == 1


def test_empty_messages_and_scalars():
    aggregator = Aggregator()
    assert aggregator.add(WorkerCompression("dense").compress({})) == "counted"
    assert aggregator.result(0).arrays() == {}
    aggregator.add(message(0, 3.0, step=1))
    assert mean_of(aggregator, 1) == 3.0


# --- who is there ----------------------------------------------------------------------------


def test_a_quorum_is_waited_for():
    aggregator = Aggregator(workers={0: 1, 1: 1, 7: 2}, quorum=2)
    assert aggregator.missing == (0, 1, 7)
    aggregator.add(message(7, [3.0]))
    assert not aggregator.ready
    with pytest.raises(GradientError, match="step 0 has 1 workers, the quorum is 2; wait"):
        aggregator.result(0)
    aggregator.add(message(0, [0.0]))
    assert aggregator.ready
    assert (aggregator.present, aggregator.missing) == ((0, 7), (1,))
    done = aggregator.result(0)
    assert done.arrays()["w"].tolist() == [2.0]
    assert done.missing == (1,)
    assert (aggregator.present, aggregator.missing) == ((), (0, 1, 7))


def test_nobody_is_missing_where_anybody_may_come():
    aggregator = Aggregator()
    assert (aggregator.present, aggregator.missing, aggregator.ready) == ((), (), False)


def test_a_late_message_is_folded_into_the_open_step():
    aggregator = Aggregator()
    aggregator.add(message(0, [2.0]))
    assert mean_of(aggregator) == [2.0]
    assert aggregator.add(message(1, [8.0], weight=2)) == "folded"
    assert not aggregator.ready
    aggregator.add(message(0, [1.0], step=1))
    aggregator.add(message(1, [0.0], step=1))
    done = aggregator.result(1)
    assert done.arrays()["w"].tolist() == [(2 * 8.0 + 1.0) / 4]
    assert done.workers == (0, 1)
    assert done.folded == ((1, 0),)
    assert done.weight == 4


def test_a_late_message_is_refused_if_so_asked():
    aggregator = Aggregator(late="refuse")
    aggregator.add(message(0, [2.0]))
    aggregator.result(0)
    assert aggregator.add(message(1, [8.0])) == "refused"
    aggregator.add(message(0, [1.0], step=1))
    assert mean_of(aggregator, 1) == [1.0]


def test_a_message_that_is_too_late_is_refused():
    aggregator = Aggregator(lateness=2)
    for step in range(3):
        aggregator.add(message(0, [1.0], step=step))
        aggregator.result(step)
    assert aggregator.add(message(1, [9.0], step=0)) == "refused"
    assert aggregator.add(message(1, [9.0], step=1)) == "folded"


@pytest.mark.parametrize("late", ["fold", "refuse"])
def test_nothing_counts_twice(late):
    aggregator = Aggregator(late=late)
    assert aggregator.add(message(0, [2.0])) == "counted"
    assert aggregator.add(message(0, [100.0])) == "repeated"
    assert aggregator.add(message(1, [4.0])) == "counted"
    assert mean_of(aggregator) == [3.0]
    assert aggregator.add(message(0, [2.0])) == "repeated"
    if late == "fold":
        assert aggregator.add(message(2, [5.0])) == "folded"
        assert aggregator.add(message(2, [5.0])) == "repeated"
    aggregator.add(message(0, [1.0], step=1))
    aggregator.result(1)
    if late == "fold":
        assert aggregator.add(message(2, [5.0])) == "repeated"
    assert aggregator.add(message(1, [4.0])) == "repeated"


def test_answers_are_kept_for_whoever_asks_later():
    aggregator = Aggregator(lateness=2)
    done = []
    for step in range(3):
        aggregator.add(message(0, [step], step=step))
        done.append(aggregator.result(step))
    assert aggregator.result(2) is done[2]
    assert aggregator.result(1) is done[1]
    with pytest.raises(GradientError, match="step 0 has no answer: step 3 is open; answers are k"):
        aggregator.result(0)
    with pytest.raises(GradientError, match="step 4 has no answer: step 3 is open"):
        aggregator.result(4)


# --- what is refused -------------------------------------------------------------------------


def refused(aggregator, data, match, error=GradientError):
    """Check that a message is refused, and that nothing has changed by it."""
    before = (aggregator.step, aggregator.present)
    with pytest.raises(error, match=match) as caught:
        aggregator.add(data)
    assert "\n" not in str(caught.value)
    assert (aggregator.step, aggregator.present) == before


def test_messages_that_do_not_fit_are_refused():
    aggregator = Aggregator(workers={0: 1, 1: 1})
    aggregator.add(message(0, [1.0, 2.0]))
    refused(aggregator, message(5, [1.0, 2.0]), "worker 5, step 0: no such worker is expected")
    refused(aggregator, message(1, [1.0, 2.0], step=1), "step 0 is open; its sender has not wait")
    refused(aggregator, message(1, [1.0]), r"'w' is float32 \(1,\), but float32 \(2,\) in earlier")
    double = WorkerCompression("dense", worker=1).compress({"w": np.zeros(2)})
    refused(aggregator, double, "'w' is float64")
    refused(aggregator, b"", "no message", CodecError)
    damaged = bytearray(message(1, [3.0, 4.0]))
    damaged[-12] ^= 1
    refused(aggregator, bytes(damaged), "checksum", CodecError)
    aggregator.add(message(1, [3.0, 4.0]))
    assert mean_of(aggregator) == [2.0, 3.0]


def test_an_answer_is_no_workers_message():
    aggregator = Aggregator()
    aggregator.add(message(0, [1.0]))
    refused(aggregator, message(SERVER, [1.0]), "the number of answers")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -3e38])
def test_values_that_would_poison_the_mean_are_refused(bad, monkeypatch):
    good = message(1, [1.0, 2.0])
    monkeypatch.setattr(
        "tensorcomp.gradients.server.worker.np.isfinite", lambda a: np.ones(1, bool)
    )
    spoiled = message(0, [1.0, bad])
    monkeypatch.undo()
    aggregator = Aggregator()
    refused(aggregator, spoiled, "worker 0, step 0: the gradient of 'w' has values that are not")
    aggregator.add(good)
    assert mean_of(aggregator) == [1.0, 2.0]


def test_a_limit_is_for_one_worker_and_for_all_names():
    aggregator = Aggregator(limit=16)
    refused(aggregator, message(0, [0.0] * 5), "more than its limit")
    aggregator.add(message(0, [0.0] * 3, name="a"))
    refused(aggregator, message(1, [0.0] * 3, name="b"), "all gradients take 24 bytes, the limit")
    aggregator.add(message(1, [0.0], name="b"))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"quorum": 0}, "a quorum of 1 worker or more, got 0"),
        ({"quorum": 3, "workers": {0: 1, 1: 1}}, "1 worker or more, 2 at most, got 3"),
        ({"late": "drop"}, '"fold" or "refuse", got \'drop\''),
        ({"lateness": -1}, "lateness to be 0 steps or more, got -1"),
        ({"workers": {4: 0.0}}, "worker 4: expected a finite weight above 0, got 0.0"),
        ({"workers": {4: math.inf}}, "worker 4: expected a finite weight above 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, match):
    with pytest.raises(GradientError, match=match):
        Aggregator(**options)


@pytest.mark.parametrize("key", ["step", "answers", "counted", "arrived"])
def test_damaged_states_are_refused_and_change_nothing(key):
    first = Aggregator("topk(0.1)")
    first.add(message(0, gradient(0, 0)))
    first.result(0)
    first.add(message(1, gradient(1, 1), step=1))
    good = first.state_dict()
    wrong = [None, [], 3.5, torch.ones(2, 2), {"1/1": np.zeros(9, np.uint8)}, {"1/1": "x"}]
    if key == "step":
        wrong = [None, [], -1, 2**70, math.nan, torch.ones(2, 2)]
    elif key == "counted":
        wrong = [3, [3], [[1, 2, 3]], [[math.inf, 1]], torch.ones(2, 3), None]
    aggregator = Aggregator("topk(0.1)")
    aggregator.add(message(4, gradient(0, 4)))
    before = aggregator.state_dict()
    without = {name: value for name, value in good.items() if name != key}
    for state in [{}, None, without, *({**good, key: value} for value in wrong)]:
        with pytest.raises(GradientError) as caught:
            aggregator.load_state_dict(state)
        assert "\n" not in str(caught.value)
        assert str(aggregator.state_dict()) == str(before)
    aggregator.load_state_dict(good)
    assert str(aggregator.state_dict()) == str(good)


# --- compressed answers ----------------------------------------------------------------------


def gradient(step, worker):
    return np.random.default_rng([step, worker]).standard_normal((30, 20)).astype(F32)


def sparse(**options):
    tree = TreeCompressor.of("topk(0.05, values=affine(8))")
    return WorkerCompression(ErrorFeedback(tree), **options)


def test_compressed_answers_leave_nothing_out_in_the_end():
    weights = {0: 0.5, 1: 0.2, 2: 0.3}
    workers = [sparse(worker=worker) for worker in weights]
    aggregator = Aggregator("topk(0.05, values=affine(8))", workers=weights)
    truth, answered = np.zeros((30, 20)), np.zeros((30, 20))
    for step in range(8):
        for worker in workers:
            now = gradient(step, worker.worker)
            truth += weights[worker.worker] * now
            aggregator.add(worker.compress({"w": now}))
        answered += aggregator.result(step).arrays()["w"]
    left = np.zeros((30, 20))
    for worker in workers:
        saved = worker.state_dict()["tensors"]["w"]["state"]["residual"]
        left += weights[worker.worker] * saved.reshape(30, 20)
    server = aggregator.state_dict()["answers"]["tensors"]["w"]["state"]["residual"]
    left += server.reshape(30, 20)
    assert np.linalg.norm(answered + left - truth) <= 1e-5 * np.linalg.norm(truth)
    assert np.linalg.norm(server) > 0.1


def test_a_restart_goes_on_bit_for_bit_with_the_messages_that_wait():
    def run(aggregator, steps, restart):
        answers = []
        for step in steps:
            for worker in range(3):
                if (step, worker) == restart:
                    saved = aggregator.state_dict()
                    aggregator = Aggregator("topk(0.1)", lateness=2)
                    aggregator.load_state_dict(saved)
                if step % 2 or worker < 2:
                    aggregator.add(message(worker, gradient(step, worker), step=step))
            if step % 2 and step > 1:
                outcome = aggregator.add(message(2, gradient(step - 1, 2), step=step - 1))
                assert outcome == "folded"
                again = aggregator.add(message(1, gradient(step - 1, 1), step=step - 1))
                assert again == "repeated"
            answers.append(aggregator.result(step).message)
        return answers

    whole = run(Aggregator("topk(0.1)", lateness=2), range(6), None)
    for restart in [(3, 0), (4, 1), (5, 2)]:
        assert run(Aggregator("topk(0.1)", lateness=2), range(6), restart) == whole


def test_a_refused_worker_takes_its_message_back():
    worker = sparse(worker=1)
    aggregator = Aggregator(late="refuse")
    truth, answered = np.zeros((30, 20)), np.zeros((30, 20))
    for step in range(5):
        now = gradient(step, 1)
        truth += now
        data = worker.compress({"w": now})
        if step == 2:
            aggregator.add(message(0, np.zeros((30, 20)), step=step))
            answered += aggregator.result(step).arrays()["w"]
            assert aggregator.add(data) == "refused"
            worker.take_back(data)
        else:
            aggregator.add(data)
            answered += aggregator.result(step).arrays()["w"]
    left = worker.state_dict()["tensors"]["w"]["state"]["residual"].reshape(30, 20)
    assert np.linalg.norm(answered + left - truth) <= 1e-5 * np.linalg.norm(truth)
