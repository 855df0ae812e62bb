from __future__ import annotations

import pytest

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    cells,
    fold,
    in_columns,
    printable,
    ratio_text,
    shape_text,
    three_digits,
)


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
