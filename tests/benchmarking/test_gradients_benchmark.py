"""What the benchmark of gradients is made of: links, ranks, limits, tables, the model's curve."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
ECHO = "tests.benchmarking.echoing_rank"
NAMES = Path("/run/netns")


@pytest.fixture
def links(bench):
    found = bench("gradients.links")
    reason = found.why_not()
    if reason:
        pytest.skip(reason)
    return found


def left_over(where):
    """Return the namespaces of a prefix that are there."""
    return sorted(path.name for path in NAMES.glob(f"{where.prefix}*")) if NAMES.exists() else []


def test_ranks_send_over_links_of_the_rate_that_was_asked_for(links):
    with links.namespaces(2, "100mbit") as where, links.ranks(where, ECHO, 20) as group:
        first, second = group.ask(20, do="send", size=1_000_000)
        assert 1_000_000 < first["sent"] < 1_100_000
        assert second["sent"] < 50_000  # acknowledgements
        assert first["seconds"] > 0.06  # 64 kB of a burst go at once
        where.shape("none")
        faster = group.ask(20, do="send", size=1_000_000)[0]
        assert faster["seconds"] < first["seconds"]
        assert left_over(where)
    assert not left_over(where)


def test_a_rank_that_fails_dies_or_is_silent_ends_all(links):
    with links.namespaces(2) as where:
        for what, seconds, message in (
            ("fail", 20, "rank 1: ValueError: as it was asked to"),
            ("die", 20, "rank 1 died: it was told to die"),
            ("sleep", 0.3, r"no answer from rank \[0, 1\] within 0 s"),
        ):
            with links.ranks(where, ECHO, 20) as group:
                processes = group.processes
                with pytest.raises(links.LinkError, match=message):
                    group.ask(seconds, do=what, **({} if what == "sleep" else {"rank": 1}))
            assert all(process.poll() is not None for process in processes)
    assert not left_over(where)


def test_namespaces_end_with_an_error_and_are_not_shared(links):
    seen = []

    def fail():
        with links.namespaces(1) as where:
            seen.append(where)
            with pytest.raises(links.LinkError, match="is there already"), links.namespaces(1):
                pass
            assert left_over(where)  # those that were there first
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not left_over(*seen)


def test_namespaces_end_with_the_process_that_made_them(links):
    code = (
        "import os, signal\n"
        "from benchmarks.gradients.links import namespaces\n"
        "with namespaces(2) as where:\n"
        "    print(where.prefix, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    prefix = killed.stdout.strip()
    assert prefix
    assert killed.returncode == -9
    for _ in range(100):
        if not list(NAMES.glob(f"{prefix}*")):
            return
        time.sleep(0.1)
    pytest.fail(f"{list(NAMES.glob(f'{prefix}*'))} are left")


@pytest.mark.parametrize("rate", ["fast", "1gbit; true", "-1mbit", ""])
def test_rates_are_those_of_tc(bench, rate):
    links = bench("gradients.links")
    with pytest.raises(links.LinkError, match="a rate is such as 100mbit"):
        links.check_rate(rate)


def test_without_tools_there_is_a_reason(bench, monkeypatch):
    links = bench("gradients.links")
    monkeypatch.setenv("PATH", os.devnull)
    assert links.why_not() == "network namespaces need the program ip"


def test_the_network_is_a_resnet_18(bench):
    model = bench("gradients.network").resnet18(10)
    assert sum(p.numel() for p in model.parameters()) == bench("gradients.__main__").PARAMETERS
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_ways_are_chosen_by_a_part_of_their_names(bench):
    gradients = bench("gradients.__main__")
    assert gradients.chosen_ways(None) == tuple(gradients.WAYS)
    assert gradients.chosen_ways(["PLAIN", "int8"]) == ("plain DDP", "int8")
    with pytest.raises(typer.BadParameter, match="no way is called like 'nope'"):
        gradients.chosen_ways(["nope"])


def test_parts_without_links_are_skipped_with_a_reason(bench, monkeypatch):
    gradients = bench("gradients.__main__")
    monkeypatch.setattr(gradients, "why_not", lambda: "there is no root here")
    app = typer.Typer()
    app.command()(gradients.main)
    monkeypatch.setattr(gradients.signal, "signal", lambda *given: None)
    result = CliRunner().invoke(app, ["--part", "wire", "--part", "overhead"])
    assert result.exit_code == 0, result.output
    assert "skipped, wire: there is no root here" in result.output
    assert "skipped, overhead: there is no root here" in result.output


FIGURES = {
    "bytes/payload": 20_000.0,
    "bytes/framed": 20_500.0,
    "ms/encode": 30.0,
    "ms/communicate": 20.0,
    "ms/decode": 10.0,
}


def row_of(wire, way, seconds, sent, **more):
    return wire.WireRow(2, more.pop("rate", "100mbit"), way, seconds, sent, 3, **more)


def test_limits_are_those_of_top_k_beside_its_peers(bench):
    wire, ways = bench("gradients.wire"), bench("gradients.ways")
    rows = [
        row_of(wire, ways.PLAIN, 4.0, 46e6),
        row_of(wire, ways.FP16, 2.0, 23e6),
        row_of(wire, ways.TOP_K, 0.25, 210_000.0, figures=FIGURES | {"bytes/framed": 200_000.0}),
    ]
    found = {
        limit.what: limit for limit in bench("gradients.verdicts").wire_limits(rows, 10_000_000)
    }
    start = "W=2, 100mbit: top-k 1 %, "
    assert found[f"{start}times fewer bytes"].measured == pytest.approx(46e6 / 210_000)
    assert found[f"{start}bits an entry, frames included"].measured == 16.0
    assert found[f"{start}× plain DDP"].measured == 16.0
    assert found[f"{start}× fp16 hook"].measured == 8.0
    assert all(limit.met for limit in found.values())


def test_the_best_peer_is_one_that_sends_and_does_not_fail(bench):
    wire, ways = bench("gradients.wire"), bench("gradients.ways")
    rows = [
        row_of(wire, ways.PLAIN, 0.9, 46e6, rate="1gbit"),
        row_of(wire, ways.NOTHING, 0.1, 100.0, rate="1gbit"),
        row_of(wire, ways.POWERSGD, float("nan"), float("nan"), rate="1gbit", error="it hangs"),
        row_of(wire, ways.FP16, 0.6, 23e6, rate="1gbit"),
        row_of(wire, ways.TOP_K, 0.3, 200_000.0, rate="1gbit"),
    ]
    last = bench("gradients.verdicts").wire_limits(rows, 10_000_000)[-1]
    assert last.what == "W=2, 1gbit: top-k 1 %, × best peer"
    assert last.measured == 2.0
    (failed,) = bench("gradients.verdicts").failure_sheet(rows).rows
    assert failed == (ways.POWERSGD, "2", "1gbit", "it hangs")
    cells = {line[0]: line[1:] for line in bench("gradients.verdicts").wire_sheet(rows, 2).rows}
    assert cells[ways.FP16] == ("23", "600", "1.5×")
    assert cells[ways.POWERSGD] == ("-", "FAILS", "-")


def test_what_is_ready_to_compress_may_cost_little_and_must_say_dense(bench):
    wire, ways = bench("gradients.wire"), bench("gradients.ways")
    rows = [
        row_of(wire, ways.PLAIN, 1.0, 1.0),
        row_of(wire, ways.ADAPTIVE, 1.02, 1.0, choices={"dense": 60, "int8": 2}),
    ]
    slow, other = bench("gradients.verdicts").overhead_limits(rows)
    assert (slow.measured, slow.met) == (1.02, True)
    assert (other.measured, other.met) == (2.0, False)


def test_the_model_is_compared_where_it_speaks(bench):
    scaling, wire, ways = (bench(f"gradients.{name}") for name in ("scaling", "wire", "ways"))
    rows = [
        row_of(wire, ways.PLAIN, 4.0, 4.2e6, message=0.001),
        row_of(wire, ways.NOTHING, 0.5, 100.0, message=0.001),
        row_of(wire, ways.TOP_K, 0.7, 21_000.0, message=0.001, figures=FIGURES),
        row_of(wire, "int8", 0.7, 21_000.0),  # nobody knows what it gave to the socket
    ]
    compared = {row.way: row for row in scaling.scaling_rows(rows, 1_000_000)}
    assert set(compared) == {ways.PLAIN, ways.TOP_K}
    plain, top = compared[ways.PLAIN], compared[ways.TOP_K]
    assert plain.model_bytes == pytest.approx(4e6)
    assert plain.measured_seconds == pytest.approx(3.5)
    # 4 MB at 100 Mbit/s, 5 % more for TCP, and two messages
    assert plain.model_seconds == pytest.approx(4e6 * 8 * 1.05 / 100e6 + 0.002)
    assert top.model_bytes == pytest.approx(20_000)
    assert top.model_seconds == pytest.approx(20_000 * 8 * 1.05 / 100e6 + 0.001 + 0.040)
    for limit in scaling.scaling_limits(list(compared.values())):
        assert limit.measured == pytest.approx(0.05)


def test_a_sheet_tells_where_the_time_goes(bench):
    wire, ways = bench("gradients.wire"), bench("gradients.ways")
    rows = [
        row_of(wire, ways.PLAIN, 4.0, 46e6),
        row_of(wire, ways.TOP_K, 0.25, 21_000.0, figures=FIGURES),
    ]
    (line,) = bench("gradients.verdicts").spent_sheet(rows).rows
    times = ("30.0", "20.0", "10.0", "250.0")
    assert line == (ways.TOP_K, "2", "100mbit", *times, "0.020", "0.021", "0.021")


def test_speed_is_that_of_all_gradients(bench):
    speed = bench("gradients.speed")
    random = np.random.default_rng(0)
    step = {
        "weight": random.standard_normal((64, 100), np.float32),
        "bias": random.standard_normal(64, np.float32),
        "scale": random.standard_normal(64, np.float32),
    }
    assert {name: a.size for name, a in speed.by_tensor(step).items()} == {
        "weight": 6400,
        "small": 128,
    }
    rows = [
        speed._row(text, "by tensor", [speed.by_tensor(step)], 2)
        for text in (speed.TOP_K, "powersgd(4)", "fp16")
    ]
    assert [row.elements for row in rows] == [6528] * 3
    # two factors of the matrix, and the vector as it is
    assert rows[1].bits == pytest.approx(32 * (4 * 164 + 128) / 6528)
    assert 16 <= rows[2].bits < 16.2
    assert all(row.encode > 0 for row in rows)


def test_a_gpu_is_not_needed_to_be_told_so(bench, monkeypatch, tmp_path):
    gpu = bench("gradients.gpu")
    app = typer.Typer()
    app.command()(gpu.main)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    assert result.output.startswith("skipped: torch finds no CUDA device here")
    path = tmp_path / "gpu.json"
    given = ["--device", "cpu", "--elements", "65536", "--rounds", "1", "--json", str(path)]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    assert '"same": "yes"' in path.read_text()
    assert '"same": "NO"' not in path.read_text()
