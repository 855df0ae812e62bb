import pytest

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    printable,
    ratio_text,
    seconds_text,
    shape_text,
    snr_text,
    three_digits,
)
from tensorcomp._tables import Column, Table, cells, fold, in_columns


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9994, "9.99 kB"),
        (9995, "10.0 kB"),
        (99_949, "99.9 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (90_868_376, "90.9 MB"),
        (10**18, "1.00 EB"),
        (10**22, "10,000 EB"),
    ],
)
def test_sizes_have_three_digits(nbytes, text):
    assert bytes_text(nbytes) == text


def test_figures():
    assert three_digits(1234.5) == "1,234"
    assert [ratio_text(ratio) for ratio in (None, 1.5, 9.9996, 41.53)] == [
        "-",
        "1.500",
        "10.0",
        "41.5",
    ]
    assert [snr_text(snr) for snr in (None, -0.04, 30.06)] == ["-", "0.0", "30.1"]
    assert [seconds_text(seconds) for seconds in (0.00004, 0.09, 0.1)] == [
        "0.04 ms",
        "90.0 ms",
        "0.10 s",
    ]
    assert [bits_text(bits) for bits in (None, 0.0, 26.105)] == ["-", "0.00", "26.11"]
    assert [shape_text(shape) for shape in ((), (3,), (2, 0))] == ["[]", "3", "2×0"]


def test_printable_escapes_what_moves_the_cursor_and_cuts_the_middle():
    assert printable("a\tb\n\x1b[0m\u202e") == "a\\tb\\n\\x1b[0m\\u202e"
    assert printable("\ud800") == "\\ud800"
    long = printable("a" * 1000 + "b" * 1000)
    assert len(long) == 301
    assert long.startswith("aaa")
    assert long.endswith("bbb")


@pytest.mark.parametrize("width", [3, 7, 12, 20, 200])
@pytest.mark.parametrize(
    "name",
    ["", "encoder.layer.0.attention.self.query.weight", "x" * 50, "層" * 20, "a.b.c.d.e.f.g.h"],
)
def test_fold_keeps_within_the_width_and_loses_nothing(name, width):
    lines = fold(name, width).split("\n")
    assert max(map(cells, lines)) <= max(width, 4)  # a wide character after an indent takes 4
    assert lines[0] + "".join(line.removeprefix("  ") for line in lines[1:]) == name


def test_columns_are_aligned_by_width_in_cells():
    lines = in_columns([("Name", "N"), ("層", "10"), ("a\nb", "9")], right=[1])
    assert lines == ["Name   N", "層    10", "a      9", "b"]


ROWS = [("encoder.layer.0.attention.self.query.weight", "a", 1.5), ("a<b|c", "b", None)]
COLUMNS = (
    Column("File", "file", lambda row: row[1], left=True, heading=True),
    Column("Name", "name", lambda row: row[0], left=True),
    Column("", "all digits", lambda row: row[2]),
    Column("Bits", "", lambda row: row[2], "{:.2f}".format),
    Column("Nothing", "nothing", lambda row: None, optional=True),
    Column("Spare", "", lambda row: "x" * 20, spare=1),
    Column("Tree", "", lambda row: "uniform(step=3)", left=True, narrow=lambda row: "uniform"),
)
TABLE = Table(COLUMNS, ROWS, {"name": "all", "all digits": 3})


def test_a_table_in_every_form():
    lines = TABLE.lines()
    assert lines[0].split() == ["File", "Name", "Bits", "Spare", "Tree"]
    assert lines[2].split() == ["b", "a<b|c", "-", "x" * 20, "uniform(step=3)"]
    assert lines[3].split() == ["all"]
    assert TABLE.markdown()[3] == f"| b | a\\<b\\|c | - | {'x' * 20} | uniform(step=3) |"
    assert TABLE.csv()[2:] == ["b,a<b|c,,", ",all,3,"]
    assert TABLE.records()[1] == {"file": "b", "name": "a<b|c", "all digits": None, "nothing": None}
    assert '<td style="text-align: left">a&lt;b|c</td>' in TABLE._repr_html_()
    assert Table(COLUMNS, []).lines() == []


def test_a_narrow_table_has_headings_and_leaves_out_what_it_can():
    lines = TABLE.lines(40)
    assert max(map(cells, lines)) <= 40
    assert lines[0].split() == ["Name", "Bits", "Tree"]
    assert lines[1:3] == ["", "a"]
    assert lines[3].startswith("encoder.layer.")
    assert " uniform" in lines[3]
    assert "step" not in "".join(lines)
