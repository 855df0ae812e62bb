"""A layout's arrays and the bytes between them make the file again; damaged templates do not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorcomp
from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.checkpoints.layouts.layout import Array, Layout, LayoutCheckpoint
from tensorcomp.checkpoints.open import open_checkpoint, restore
from tensorcomp.errors import CheckpointError, FormatError


def array(start: int, shape: tuple[int, ...], dtype: str = "F32", **others: object) -> Array:
    width = {"F32": 4, "U8": 1, "I16": 2}[dtype]
    name = str(others.pop("name", f"at {start}"))
    return Array(name, dtype, shape, start, int(np.prod(shape)) * width, **others)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    return path


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            *(st.integers(0, 5100), st.integers(0, 40), st.integers(0, 9)),
            *(st.booleans(), st.booleans()),
        ),
        max_size=12,
    )
)
def test_any_places(file: Path, decoded: type, places: Any) -> None:
    arrays = [
        array(start, (rows, columns), axes=(1, 0) if turned else (), swapped=swapped)
        for start, rows, columns, turned, swapped in places
    ]
    with LayoutCheckpoint(file, Layout("any", arrays)) as checkpoint:
        assert sum(info.nbytes for info in checkpoint.tensors) == 5000
        for info in checkpoint.arrays:
            assert info.name.startswith("at ")
        source, template = decoded(checkpoint), checkpoint.template()
    restore(template, source, file.with_name("back"))
    assert file.with_name("back").read_bytes() == file.read_bytes()


def test_what_overlaps_or_lies_outside_is_no_array(file):
    layout = Layout(
        "any", [array(100, (5,)), array(104, (5,)), array(-4, (1,)), array(4998, (1,)),
                array(200, (3,), name="a"), array(300, (3,), name="a"),
                Array("wrong", "F32", (3,), 400, 11)]
    )  # fmt: skip
    with LayoutCheckpoint(file, layout) as checkpoint:
        assert [info.name for info in checkpoint.arrays] == ["at 100", "a", "a#2"]
        with pytest.raises(CheckpointError, match="has no tensor 'absent'"):
            checkpoint.read("absent")


def test_long_runs_between_arrays_are_tensors_of_their_own(tmp_path, decoded):
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(0).bytes((3 << 20) + 400))
    layout = Layout("any", [array(100, (5,)), array((2 << 20) + 200, (5,))])
    with LayoutCheckpoint(path, layout) as checkpoint:
        names = [info.name for info in checkpoint.tensors]
        assert names == ["skeleton", "at 100", "bytes", f"at {(2 << 20) + 200}", "bytes#2"]
        assert checkpoint.hidden == {"skeleton", "bytes", "bytes#2"}
        held = checkpoint.read("bytes")
        assert held.base is not None  # a view, whatever its length
        restore(checkpoint.template(), decoded(checkpoint), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_damaged_templates(file, decoded, tmp_path):
    layout = Layout("any", [array(100, (5, 2), axes=(1, 0)), array(200, (3,))])
    with LayoutCheckpoint(file, layout) as checkpoint:
        source, good = decoded(checkpoint), dict(checkpoint.template().structure)
    order = {"at 100": {"axes": [1, 0], "swapped": False}}
    assert good["orders"] == order
    for damage in (
        {"gaps": None},
        {"gaps": []},
        {"gaps": [100]},
        {"gaps": [100, 60, 0, 0]},
        {"gaps": [100, -1]},
        {"gaps": [100, 2**63]},
        {"gaps": [100, 5000]},
        {"gaps": [100, True]},
        {"gaps": [100, "1"]},
        {"orders": 5},
        {"orders": {"at 100": {}}},
        {"orders": {"at 100": {"axes": [0, 0], "swapped": False}}},
        {"orders": {"at 100": {"axes": [0, 1, 2], "swapped": False}}},
        {"orders": {"at 100": {"axes": ["a"], "swapped": False}}},
    ):
        with pytest.raises(FormatError):
            restore(SourceTemplate("layout", good | damage), source, tmp_path / "out")


def test_unknown_files_are_bytes_with_a_warning(tmp_path, caplog):
    path = tmp_path / "weights.dat"
    path.write_bytes(b"\x01\x02" + np.linspace(0, 1, 9000, dtype=np.float32).tobytes())
    done = tensorcomp.compress(path)
    (message,) = caplog.messages
    assert message.startswith(f"{path}: is of no known format")
    assert message.endswith("; compressed as bytes")
    assert done.ratio > 1
    assert tensorcomp.load_file(done.path) == {}
    back = tensorcomp.decompress(done.path, tmp_path / "back")
    assert back.read_bytes() == path.read_bytes()
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.kind == "bytes"
