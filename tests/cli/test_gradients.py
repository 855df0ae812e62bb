import csv

import click
import pytest

from tensorcomp_cli import quantity

ASKED = ("gradients", "estimate", "--parameters", "2e6", "--world", 8, "--bandwidth", "100mbit")
ONE = ("--compressor", "topk(0.01, values=affine(8))")


def test_estimate_prints_a_table(call):
    done = call.ok(*ASKED, *ONE, "--compressor", "int8")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["dense", "topk(0.01,", "int8"]
    assert "14.0 MB" in lines[1]  # 2 · 7/8 · 8 MB
    assert lines[5].startswith("2,000,000 parameters, 8 ranks, lines of 100 Mbit/s")
    assert lines[-1].startswith("Compression pays: a step takes ")
    assert " with topk(0.01, values=affine(8)), " in lines[-1]


def test_it_says_plainly_where_compression_does_not_pay(call):
    done = call(*ASKED[:-1], "400gbit", *ONE)
    assert done.stdout.splitlines()[-1].startswith("Compression does not pay here: a step takes ")


def test_estimate_json(call):
    options = ("--latency", "2s", "--backward-ms", 500, "--json")
    done = call(*ASKED, *ONE, *options)
    value = done.json
    assert {key: value[key] for key in list(value)[:5]} == {
        "parameters": 2_000_000,
        "world": 8,
        "bandwidth_bits_per_second": 1e8,
        "latency_seconds": 2.0,
        "backward_seconds": 0.5,
    }
    assert (value["pays"], value["fastest"]) == (True, ONE[1])
    dense, sparse = value["compressors"]
    assert set(dense) == set(sparse)
    assert sparse["bytes_sent"] < dense["bytes_sent"] / 40
    assert sparse["speed_up"] > 1


def test_estimate_csv_and_markdown(call):
    rows = list(csv.DictReader(call(*ASKED, *ONE, "--csv").stdout.splitlines()))
    assert [row["compressor"] for row in rows] == ["dense", ONE[1]]
    lines = call(*ASKED, *ONE, "--markdown").stdout.splitlines()
    assert lines[0].startswith("| Compressor | Bits |")
    assert lines[-1].startswith("- Compression pays")


@pytest.mark.slow
def test_a_few_compressors_by_default(call):
    from tensorcomp.gradients.cost_model.estimate import RECIPES

    done = call(*ASKED, "--json")
    found = [row["compressor"] for row in done.json["compressors"]]
    assert found == ["dense", *RECIPES]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--parameters", "0", "expected a number of parameters"),
        ("--parameters", "many", "expected a number of parameters"),
        ("--parameters", "nan", "expected a number of parameters"),
        ("--parameters", "1e30", "expected a number of parameters"),
        ("--world", "1", "--world"),
        ("--bandwidth", "1", "expected a bandwidth"),
        ("--bandwidth", "0gbit", "expected a bandwidth"),
        ("--bandwidth", "1e999bit", "expected a bandwidth"),
        ("--latency", "1", "expected a time"),
        ("--latency", "-1ms", "expected a time"),
        ("--latency", "1e999s", "expected a time"),
        ("--backward-ms", "-1", "--backward-ms"),
        ("--backward-ms", "inf", "not a finite time"),
        ("--backward-ms", "nan", "--backward-ms"),
        ("--compressor", "nonesuch(1)", "nonesuch"),
        ("--compressor", "pq(4)", "pq cannot go on the wire"),
    ],
)
def test_refusals(call, option, value, words):
    call.refused(words, *ASKED, option, value)


def test_other_wrong_usage(call):
    call.refused("exclude each other", *ASKED, "--json", "--csv")
    call.refused("--parameters", "gradients", "estimate")
    assert call("gradients").status == 2
    call.refused("estimat", "gradients", "estimat")


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (quantity.count, "25e6", 25_000_000),
        (quantity.count, "7B", 7_000_000_000),
        (quantity.count, "1.5 m", 1_500_000),
        (quantity.bandwidth, "1gbit", 1e9),
        (quantity.bandwidth, "2.5 Gbit/s", 2.5e9),
        (quantity.bandwidth, "100Mbps", 1e8),
        (quantity.bandwidth, "56e3bit", 56e3),
        (quantity.duration, "0.1ms", 1e-4),
        (quantity.duration, "50us", 5e-5),
        (quantity.duration, "2h", 7200.0),
        (quantity.duration, ".5s", 0.5),
        (quantity.duration, "0s", 0.0),
    ],
)
def test_quantities(parse, text, value):
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "bit", "1 gbyte", "1GB/s", "--1gbit", "1gbit/ms"])
def test_what_is_no_bandwidth(text):
    with pytest.raises(click.BadParameter, match="expected a bandwidth such as 100mbit"):
        quantity.bandwidth(text)


def test_torch_is_not_imported(python):
    code = (
        "import sys\n"
        "from tensorcomp_cli.main import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = python(code, *ASKED, *ONE, "--json")
    assert done.status == 0, done.stderr


def test_help_imports_no_gradients(python):
    code = (
        "import sys\n"
        "from tensorcomp_cli.main import main\n"
        "assert main(['gradients', 'estimate', '--help']) == 0\n"
        "assert not {'torch', 'tensorcomp.kernels', 'tensorcomp.gradients'} & set(sys.modules)\n"
    )
    done = python(code)
    assert done.status == 0, done.stderr
    assert "--bandwidth 1gbit" in done.stdout
