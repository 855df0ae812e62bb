from __future__ import annotations

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


def row(label: str, bits: float, snr: float | None, family: str = "", **more) -> StrategyRow:
    return StrategyRow(label, family or label, "raw", bits=bits, snr_db=snr, **more)


@pytest.fixture
def found() -> Benchmark:
    rows = (
        row("lossless", 26.0, None),
        *(row(f"uniform {b}", b, 6 * b - 1.5, "uniform") for b in (2.0, 4.0, 8.0)),
        *(row(f"peer {b}", b, 6 * b - 2.5, "a peer", peer=True) for b in (3.0, 5.0)),
        row("one $\\x$ point", 4.1, 18.0),
        row("another point", 4.15, 18.2, peer=True),
        row("below zero", 1.0, -2.0),
        row("far off", 16.0, 70.0),
        row("infinite", 3.0, -math.inf),
        StrategyRow("broken", "broken", "lib", problem="no"),
    )
    return Benchmark(
        name="a$b.safetensors",
        profile="transformer",
        weights=1000,
        tensors=3,
        input_bytes=4200,
        lossy_weights=900,
        measured_weights=500,
        measured_tensors=2,
        threads=1,
        limit=Limit((450.0, 450.0), (1.5, 0.5), 900.0, 100.0, 50.0),
        tensor_limit=Limit((900.0,), (1.0,), 900.0, 100.0, 50.0),
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
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend[2:] == ["uniform", "a peer"]
    assert all(text.startswith("R(D), Gaussian") for text in legend[:2])
    texts = [text.get_text() for text in axes.texts]
    assert "another point" in texts
    assert "one \\$\\x\\$ point" in texts
    assert "below zero" in texts
    (others,) = (text for text in texts if text.startswith("Not drawn"))
    assert "lossless: 26.00 bits, exact" in others
    assert "far off: 16.00 bits, 70.0 dB" in others
    assert "infinite" in others
    assert not any("broken" in text for text in texts)
    (caption,) = (text.get_text() for text in figure.texts)
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
