"""A codec of another package is one file: planners, benchmark and gradients find it."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tensorcomp import Budget, load_file, save
from tensorcomp.benchmark.run import bench
from tensorcomp.codecs import codec_class, format_tree
from tensorcomp.codecs.registry import added_codecs, added_templates
from tensorcomp.codecs.text import parse_text
from tensorcomp.errors import FormatError
from tensorcomp.gradients import ErrorFeedback, parse_compressor
from tensorcomp.planning.lossless import plan_lossless
from tensorcomp.planning.profiles import load_profile
from tensorcomp.testing import codec_checks
from tensorcomp_cli.main import main

_SOURCE = '''
import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs import ArraySpec, Serializer, Transform
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import CodecError, NotRepresentable

tried = []


@dataclass(frozen=True)
class Ramp(Serializer):
    """Store the first two of integers in equal steps. Layout: both. Lossless. Cost: O(n)."""

    id: ClassVar[str] = "ramp"
    templates: ClassVar[tuple[str, ...]] = ("ramp",)

    def encode(self, array, shared=b""):
        flat = array.reshape(-1)
        if array.dtype.kind not in "iu" or flat.size < 2 or len(np.unique(np.diff(flat))) > 1:
            raise NotRepresentable("ramp: no equal steps")
        return [flat[:2].tobytes()]

    def decode(self, data, out, shared=b""):
        if data.size != 2 * out.itemsize:
            raise CodecError(f"ramp: expected two elements, got {data.size} bytes")
        first, second = np.frombuffer(data.tobytes(), out.dtype)
        out.reshape(-1)[:] = first + (second - first) * np.arange(out.size).astype(out.dtype)


@dataclass(frozen=True)
class Coarse(Transform):
    """Round to multiples of a step. Parts: codes, int32. Error: half a step. Cost: O(n)."""

    id: ClassVar[str] = "coarse"
    lossless: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    templates: ClassVar[tuple[str, ...]] = ("coarse($step)",)
    strategies: ClassVar[tuple[Strategy, ...]] = (Strategy("coarse", "coarse($step)", 4),)
    default_parts: ClassVar[dict[str, str]] = {"codes": "ans"}
    step: float

    def parts(self, spec):
        return {"codes": ArraySpec(spec.shape, np.dtype("<i4"))}

    def encode(self, array, shared=b""):
        tried.append(self.step)
        return {"codes": np.rint(array / self.step).astype("<i4")}

    def decode(self, parts, out, shared=b""):
        out[...] = parts["codes"] * self.step
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a package on the path that announces two codecs."""
    information = tmp_path / "added_codecs_package-1.0.dist-info"
    information.mkdir()
    (tmp_path / "added_codecs_package.py").write_text(_SOURCE)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: a\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[tensorcomp.codecs]\n"
        "ramp = added_codecs_package:Ramp\ncoarse = added_codecs_package:Coarse\n"
    )
    caches = (codec_class, parse_text, added_codecs, added_templates)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("package")
def test_the_lossless_planner_tries_it(tmp_path: Path) -> None:
    numbers = 7 * np.arange(20_000, dtype=np.int64) - 99
    assert format_tree(plan_lossless(numbers, "balanced").tree) == "ramp"
    path = tmp_path / "x.tc.safetensors"
    path.write_bytes(save({"x": numbers}))
    np.testing.assert_array_equal(load_file(path)["x"], numbers)


@pytest.mark.usefixtures("package")
def test_the_planner_tries_it_under_a_budget() -> None:
    tried = importlib.import_module("added_codecs_package").tried
    assert "coarse($step)" in load_profile("transformer").trees("mlp")
    weights = np.random.default_rng(0).normal(0, 0.02, (128, 64)).astype(np.float32)
    save({"layers.0.mlp.up_proj.weight": weights}, profile="transformer", budget=Budget(min_snr=30))
    assert tried


@pytest.mark.usefixtures("package")
def test_the_benchmark_lists_it(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    from safetensors.numpy import save_file

    weights = np.random.default_rng(0).normal(0, 0.02, (128, 64)).astype(np.float32)
    save_file({"layers.0.mlp.up_proj.weight": weights}, path)
    labels = [row.label for row in bench(path).rows]
    assert labels[0] == "lossless"
    assert labels[-1] == "coarse"


@pytest.mark.usefixtures("package")
def test_gradients_go_by_it() -> None:
    compressor = parse_compressor("coarse(0.001)")
    assert isinstance(compressor, ErrorFeedback)
    assert parse_compressor(compressor.text()) == compressor
    for check in codec_checks("coarse(0.01)", arrays={"w": np.ones((9, 8), np.float32)}):
        check()


def test_without_the_package_a_file_is_refused_in_one_line(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = package / "ramp.tc.safetensors"
    tensors = {"a": np.arange(5000), "b": np.arange(7000), "c": np.arange(9000)}
    path.write_bytes(save(tensors, codecs="all=ramp"))
    monkeypatch.setattr("sys.path", [place for place in sys.path if place != str(package)])
    codec_class.cache_clear()
    parse_text.cache_clear()
    out = package / "out"
    for arguments in (["verify", path], ["decompress", path, "-o", out]):
        assert main(list(map(str, arguments))) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert "no codec is called 'ramp'; install the package that brings it" in line
    assert not out.exists()
    assert main(["inspect", str(path)]) == 0
    with pytest.raises(FormatError, match="no codec is called 'ramp'; install"):
        load_file(path)
