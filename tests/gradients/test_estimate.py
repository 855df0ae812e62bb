import csv
import math

import numpy as np
import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients.cost_model import estimate as module
from tensorcomp.gradients.cost_model.coding_speeds import SampleFigures, measure_samples
from tensorcomp.gradients.cost_model.estimate import Estimate, EstimateRow, estimate
from tensorcomp.gradients.cost_model.model import Cost
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.reports import estimate_tables as tables

SHAPE = (128, 256)


def sample(text):
    (found,) = measure_samples([(text, parse_compressor(text))], SHAPE)
    return found


@pytest.mark.parametrize(
    ("text", "reduction", "bits", "phases"),
    [
        ("dense", "sum", (32, 32), 1),
        ("int8", "reduce_scatter", (8.0, 8.4), 1),
        ("topk(0.01, values=affine(8))", "gather", (0.14, 0.25), 1),
        ("randomk(0.01)", "sum", (0.319, 0.321), 1),
        # Rank 4 of 128 × 256: 4 · (128 + 256) values.
        ("powersgd(4)", "sum", (1.5, 1.5), 2),
        ("warmup(topk(0.01), steps=100)", "gather", (0.3, 0.5), 1),
        ("per_role(int8)", "reduce_scatter", (8.0, 8.4), 1),
    ],
)
def test_what_compressors_do_to_the_sample(text, reduction, bits, phases):
    found = sample(text)
    cost = found.cost
    assert (found.text, cost.reduction, cost.collectives) == (text, reduction, phases)
    assert bits[0] <= 8 * cost.payload_bytes <= bits[1]
    assert cost.encode > 0 or text == "dense"
    assert (cost.decode > 0) == (reduction != "sum")


def test_errors_of_the_sample():
    assert sample("dense").error == 0
    assert 0.001 < sample("int8").error < 0.03
    assert 0.5 < sample("topk(0.01)").error < 0.9
    # Scaled up by 100, a hundredth of the elements: √99 on average.
    assert sample("randomk(0.01)").error == pytest.approx(math.sqrt(99), rel=0.5)


def test_an_estimate_by_hand():
    texts = ("topk(0.01)", "int8")
    found = estimate(10_000_000, 4, 1e8, latency=1e-3, compressors=texts, shape=SHAPE)
    assert [row.text for row in found.rows] == ["dense", *texts]
    dense, sparse, _ = found.rows
    # 40 MB in 2 buckets: 1.5 · 40 MB sent, 12 messages; 1.05 bytes on the line for each byte.
    assert dense.bytes_sent == 60e6
    assert dense.communicate == pytest.approx(60e6 * 1.05 / 12.5e6 + 12 * 1e-3)
    assert dense.step == dense.communicate
    assert (dense.encode, dense.decode, dense.speed_up) == (0, 0, 1)
    assert sparse.bytes_sent == pytest.approx(3 * sparse.bits * 10e6 / 8)
    assert sparse.communicate == pytest.approx(sparse.bytes_sent * 1.05 / 12.5e6 + 6 * 1e-3)
    assert sparse.step == pytest.approx(sparse.encode + sparse.communicate + sparse.decode)
    assert sparse.speed_up == pytest.approx(dense.step / sparse.step)
    assert sparse.pays
    assert found.fastest is sparse
    longer = sparse.encode + sparse.decode - 6 * 1e-3  # but half as many messages
    expected = (60e6 - sparse.bytes_sent) * 8 * 1.05 / longer if longer > 0 else math.inf
    assert sparse.break_even == pytest.approx(expected)


def test_a_backward_pass_hides_the_exchange(monkeypatch):
    cost = Cost("reduce_scatter", 1.0, encode=1e-9, decode=1e-9)  # not those of a busy machine
    int8 = SampleFigures("int8", cost, 0.01)
    monkeypatch.setattr(module, "measure_samples", lambda parsed, shape: [int8])
    found = estimate(20_000_000, 2, 1e11, backward=10.0, compressors=("int8",), shape=SHAPE)
    assert found.dense.step == pytest.approx(10.0, rel=0.01)
    assert found.rows[1].speed_up == pytest.approx(1.0, rel=0.05)
    assert not found.rows[1].pays
    assert "does not pay" in verdict(found)


@pytest.mark.parametrize(
    "arguments", [(0, 2, 1e9), (10, 1, 1e9), (10, 2, 0.0), (10, 2, -1.0), (10, 2, math.nan)]
)
def test_refusals(arguments):
    with pytest.raises(GradientError, match="an estimate is of"):
        estimate(*arguments)
    for latency in (-1.0, math.inf):
        with pytest.raises(GradientError, match="an estimate is of"):
            estimate(10, 2, 1e9, latency=latency)
    with pytest.raises(GradientError, match="estimate these: int8, sign"):
        estimate(10, 2, 1e9, compressors=["per_role(adaptive(int8, sign))"])
    with pytest.raises(GradientError, match="nonesuch"):
        estimate(10, 2, 1e9, compressors=["int8", "nonesuch(3)"])


def row(text, speed_up, break_even, step=0.5):
    return EstimateRow(text, 8.0, 0.01, 1e6, 0.001, 0.02, 0.003, step, speed_up, break_even)


FOUND = Estimate(
    25_000_000,
    8,
    1e9,
    1e-4,
    0.25,
    (
        row("dense", 1.0, 0.0, 1.0),
        row("int8", 2.0, 2.5e9),
        row("sign", 0.5, 0.0, 2.0),
        row("fp16", 1.0, math.inf, 1.0),
    ),
)


def verdict(found):
    return list(tables.estimate_notes(found))[-1]


def test_tables_of_an_estimate():
    lines = tables.estimate_table(FOUND).lines()
    assert [line.split()[0] for line in lines] == ["Compressor", "dense", "int8", "sign", "fp16"]
    assert lines[1].endswith("1.00×            -")
    assert lines[2].endswith("2.00×  2.50 Gbit/s")
    assert lines[3].endswith("never")
    assert lines[4].endswith("any")
    assert all(len(line) <= 70 for line in tables.estimate_table(FOUND).lines(70))
    notes = list(tables.estimate_notes(FOUND))
    assert notes[0] == (
        "25,000,000 parameters, 8 ranks, lines of 1.00 Gbit/s and 0.10 ms a message, "
        "250 ms of backward pass"
    )
    assert verdict(FOUND) == (
        "Compression pays: a step takes 500 ms with int8, 1,000 ms with dense gradients"
    )
    assert tables.estimate_table(FOUND).markdown()[1].startswith("| --- | ---: |")


def test_files_of_an_estimate():
    values = list(csv.DictReader(tables.estimate_table(FOUND).csv()))
    assert [one["break_even_bits_per_second"] for one in values] == [
        "0.0",
        "2500000000.0",
        "0.0",
        "",
    ]
    value = tables.estimate_json(FOUND)
    assert (value["pays"], value["fastest"]) == (True, "int8")
    assert value["compressors"][1]["bytes_sent"] == 1e6
    assert value["compressors"][3]["break_even_bits_per_second"] is None


@pytest.mark.parametrize(
    ("speed_up", "words"),
    [
        (1.04, "Compression does not pay here: a step takes 1,000 ms with dense gradients, 500 ms"),
        (1.06, "Compression pays: a step takes 500 ms"),
    ],
)
def test_a_gain_within_the_models_error_is_none(speed_up, words):
    found = Estimate(1, 2, 1e9, 0, 0, (FOUND.dense, row("int8", speed_up, 1e9)))
    assert verdict(found).startswith(words)
    assert tables.estimate_json(found)["fastest"] == ("int8" if speed_up > 1.05 else "dense")


def test_dense_alone():
    found = Estimate(1, 2, 1e9, 0, 0, (FOUND.dense,))
    assert found.fastest is None
    assert verdict(found) == "A step takes 1,000 ms with dense gradients"


@pytest.mark.parametrize(
    ("bits", "text"),
    [(1e9, "1.00 Gbit/s"), (999e6, "999 Mbit/s"), (56_000, "56.0 kbit/s"), (0.5, "0.50 bit/s")],
)
def test_bandwidths_as_text(bits, text):
    assert tables.bandwidth_text(bits) == text


def test_the_sample_is_the_same_every_time():
    first, second = (sample("topk(0.01)").cost.payload_bytes for _ in range(2))
    assert first == second
    assert np.isfinite(sample("sign").cost.payload_bytes)
