import csv
import json
import math

import pytest

from tensorcomp.benchmark.figures import Benchmark, StrategyRow
from tensorcomp.benchmark.tables import benchmark_json, benchmark_notes, benchmark_table
from tensorcomp.metrics.gaussian_limit import Limit


def row(label: str, bits: float, snr: float | None, **more) -> StrategyRow:
    figures = {
        "family": label,
        "tree": "uniform($step)",
        "stored": 125 * bits,
        "ratio": 32 / bits,
        "lowest_snr_db": None if snr is None else snr - 1,
        "gap": None if snr is None else -0.25,
        "refused": 0,
        "encode_speed": 5e6,
        "decode_speed": 1.5e8,
    }
    return StrategyRow(label, bits=bits, snr_db=snr, **{**figures, **more})


@pytest.fixture
def found() -> Benchmark:
    return Benchmark(
        name="a|b\x1b.safetensors",
        profile="transformer",
        weights=1000,
        tensors=3,
        input_bytes=4200,
        lossy_weights=900,
        measured_weights=500,
        threads=1,
        limit=Limit((450.0, 450.0), (1.5, 0.5), 900.0, 100.0, 50.0),
        rows=(
            row("lossless", 26.0, None, tree=""),
            row("four", 4.0, 20.0, refused=2),
            row("infinite", 5.0, -math.inf, gap=None),
        ),
    )


def test_the_table_has_a_line_a_strategy(found):
    lines = benchmark_table(found).lines()
    assert len(lines) == 4
    assert lines[0].split()[:4] == ["Strategy", "Bits", "Ratio", "SNR"]
    assert lines[1].split()[:4] == ["lossless", "26.00", "1.23", "exact"]
    assert lines[2].split()[:6] == ["four", "4.00", "8.00", "20.00", "19.00", "0.1"]
    assert lines[2].split()[6:] == ["-0.25", "5.00", "150", "2", "uniform($step)"]


def test_a_narrow_table_keeps_within_its_width(found):
    lines = benchmark_table(found).lines(76)
    assert max(map(len, lines)) <= 76
    assert "Tree" not in lines[0]
    assert "Gap" in lines[0]


def test_notes_say_what_was_measured(found):
    notes = list(benchmark_notes(found))
    assert notes[0].startswith("a|b\\x1b.safetensors: 1,000 weights in 3 tensors, 4.20 kB; ")
    assert "500 of the 900 weights" in notes[0]
    text = "\n".join(notes)
    assert "0.400 of them" in text
    assert "log₂" in text
    assert "below 0 where" in text
    assert "1 thread" in text
    assert "Refused" in text


def test_csv(found):
    rows = list(csv.DictReader(benchmark_table(found).csv()))
    by_label = {row["strategy"]: row for row in rows}
    assert len(rows) == 3
    four = by_label["four"]
    assert float(four["bits_per_weight"]) == 4
    assert float(four["rel_l2"]) == pytest.approx(0.1)
    assert four["lossless_tensors"] == "2"
    assert by_label["lossless"]["snr_db"] == ""


def test_json(found):
    value = benchmark_json(found)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert value["lossless_bits_per_weight"] == 0.4
    assert value["limit"][0] == value["tensor_limit"][0] == {"bits_per_weight": 0.4, "snr_db": 0}
    exact, _, infinite = value["strategies"]
    assert exact["snr_db"] is exact["gap_bits"] is None
    assert exact["bits_per_weight"] == 26
    assert infinite["snr_db"] == "-inf"
