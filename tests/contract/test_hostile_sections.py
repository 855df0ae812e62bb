"""Side information lies in a zstd frame that flips of the payload only break: flip it inside."""

import importlib
import pkgutil
from collections.abc import Iterator

import numpy as np
import pytest
from contract_trees import OWN_TREES

import tensorcomp.codecs
from tensorcomp.codecs import decode, encode, fit, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.entropy.side_info import unpack_side_info
from tensorcomp.codecs.payload import join
from tensorcomp.errors import NotRepresentable
from tensorcomp.testing import nasty_arrays
from tensorcomp.testing.damage import expect_error_or_array

ARRAYS = (
    "weights float32",
    "rows and columns scaled",
    "rows and columns scaled, codes",
    "geometric uint16",
    "one rare symbol of many",
    "two-sided",
    "wide alphabet",
    "fp32 that holds fp16 in some rows",
    "int8 grid, a scale a row",
    "half zeros",
    "runs",
    "rare marks",
    "positions",
)


def modules_with_sections() -> list[object]:
    names = [
        module.name
        for module in pkgutil.walk_packages(tensorcomp.codecs.__path__, "tensorcomp.codecs.")
    ]
    modules = [importlib.import_module(name) for name in names]
    return [module for module in modules if hasattr(module, "unpack_side_info")]


def test_there_is_something_to_tamper_with():
    assert len(modules_with_sections()) > 2


class Tampering:
    """Stands for `unpack_side_info`; changes one byte of one section, in the call that is named."""

    def __init__(self) -> None:
        self.sizes: list[list[int]] = []
        self.target: tuple[int, int] | None = None
        self.change = ("", 0, 0)

    def __call__(self, data: bytes, count: int, limit: int) -> list[bytes]:
        sections = unpack_side_info(data, count, limit)
        call = len(self.sizes)
        self.sizes.append([len(section) for section in sections])
        if self.target is not None and self.target[0] == call:
            kind, place, value = self.change
            section = bytearray(sections[self.target[1]])
            if kind == "set":
                section[place] = value
            elif kind == "cut":
                del section[place:]
            else:
                section += bytes([value])
            sections[self.target[1]] = bytes(section)
        return sections


def changes(size: int, random: np.random.Generator) -> Iterator[tuple[str, int, int]]:
    places = set(range(min(size, 12))) | set(
        random.integers(0, max(size, 1), min(size, 8)).tolist()
    )
    for place in sorted(places):
        for value in (0, 0xFF, int(random.integers(256))):
            yield "set", place, value
    for place in {0, size // 2, size - 1} - {-1}:
        yield "cut", place, 0
    yield "add", 0, 0
    yield "add", 0, 0xFF


@pytest.mark.parametrize("tree", OWN_TREES)
def test_hostile_side_information(tree, monkeypatch):
    node = parse_tree(tree)
    tampering = Tampering()
    for module in modules_with_sections():
        monkeypatch.setattr(module, "unpack_side_info", tampering)
    random = np.random.default_rng(3)
    arrays = nasty_arrays()
    for name in ARRAYS:
        array = readable(arrays[name])
        try:
            shared = fit(node, array)
            payload = join(encode(node, array, shared))
        except NotRepresentable:
            continue
        tampering.sizes, tampering.target = [], None
        decoded = decode(node, payload, spec_of(array), shared)
        assert not node.lossless or decoded.tobytes() == array.tobytes()
        for call, sizes in enumerate(tampering.sizes):
            for section, size in enumerate(sizes):
                for change in changes(size, random):
                    tampering.sizes, tampering.target, tampering.change = (
                        [],
                        (call, section),
                        change,
                    )
                    what = f"{name}: section {section} of {call}: {change}"
                    expect_error_or_array(node, payload, spec_of(array), shared, what)
