import io
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tensorcomp.benchmark.figures import Benchmark, StrategyRow
from tensorcomp.benchmark.plot import check_plot, draw_benchmark
from tensorcomp.errors import CheckpointError
from tensorcomp.metrics.gaussian_limit import Limit


def row(label: str, bits: float, snr: float | None, family: str = "") -> StrategyRow:
    figures = {"stored": 1, "ratio": 2, "lowest_snr_db": snr, "gap": 0, "refused": 0}
    figures |= {"encode_speed": 1, "decode_speed": 1, "bits": bits, "snr_db": snr}
    return StrategyRow(label, family or label, "raw", **figures)


@pytest.fixture
def found() -> Benchmark:
    rows = (
        row("lossless", 26.0, None),
        *(row(f"uniform {b}", b, 6 * b - 1.5, "uniform") for b in (2.0, 4.0, 8.0)),
        *(row(f"other {b}", b, 6 * b - 2.5, "another family") for b in (3.0, 5.0)),
        row("one $\\x$ point", 4.1, 18.0),
        row("another point", 4.15, 18.2),
        row("below zero", 1.0, -2.0),
        row("far off", 16.0, 70.0),
        row("infinite", 3.0, -math.inf),
    )
    return Benchmark(
        name="a$b.safetensors",
        profile="transformer",
        weights=1000,
        tensors=3,
        input_bytes=4200,
        lossy_weights=900,
        measured_weights=500,
        threads=1,
        limit=Limit((450.0, 450.0), (1.5, 0.5), 900.0, 100.0, 50.0),
        rows=rows,
    )


def drawn(found: Benchmark, kind: str) -> bytes:
    pytest.importorskip("matplotlib")
    file = io.BytesIO()
    draw_benchmark(found, file, kind)
    return file.getvalue()


def test_a_png_is_drawn_twice_alike(found):
    data = drawn(found, "png")
    assert data.startswith(b"\x89PNG")
    assert data == drawn(found, "png")


def test_the_plot_says_what_it_shows(found):
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context():
        from tensorcomp.benchmark.plot import _figure

        figure = _figure(found)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "rate, bits per weight"
    assert axes.get_ylabel() == "signal-to-noise ratio, dB"
    assert "1,000 weights" in axes.get_title(loc="left")
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[0].startswith("R(D), Gaussian")
    assert texts[1:3] == ["uniform", "another family"]
    assert {"another point", "one \\$\\x\\$ point", "below zero"} < set(texts)
    assert "not drawn: lossless, 26.00 bits, exact" in texts
    assert "not drawn: far off, 16.00 bits, 70.0 dB" in texts
    assert any("infinite" in text for text in texts)
    caption = figure.get_supxlabel()
    assert "log₂" in caption
    assert "0.4 bits per weight" in caption


def test_a_plot_of_exact_strategies_only(found):
    assert drawn(replace(found, rows=found.rows[:1]), "png").startswith(b"\x89PNG")
    assert drawn(replace(found, rows=()), "svg").startswith(b"<?xml")


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_other_formats(found, kind):
    assert drawn(found, kind) == drawn(found, kind)


def test_check_plot_names_what_is_wrong(monkeypatch):
    with pytest.raises(CheckpointError, match=r"ends in one of \.png, \.svg, \.pdf"):
        check_plot(Path("rates.jpeg"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CheckpointError, match=r"pip install 'tensorcomp\[plot\]'"):
        check_plot(Path("rates.png"))
