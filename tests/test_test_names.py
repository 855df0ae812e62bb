"""Test modules have names of their own, since pytest imports them by these."""

from collections import Counter
from pathlib import Path


def test_no_two_modules_have_one_name():
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
