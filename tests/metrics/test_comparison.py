"""Comparisons of real files: what is matched with what, and the figures."""

import json
import math

import ml_dtypes
import numpy as np
import pytest
from checkpoint_files import write_safetensors as write

import tensorcomp
from tensorcomp.api.compare import compare
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.errors import CheckpointError, FormatError
from tensorcomp.metrics.comparison import Comparison
from tensorcomp.metrics.distortion import measure
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "layer.weight": random.normal(0, 0.02, (300, 70)).astype(np.float32),
        "layer.bias": random.normal(0, 1, 70).astype(ml_dtypes.bfloat16),
        "ids": np.arange(2**53, 2**53 + 9),
        "mask": np.array([True, False]),
        "scalar": np.array(3.5, np.float64),
        "empty": np.zeros((0, 4), np.float16),
        "complex": np.array([1 + 2j, 3], np.complex64),
        "nan": np.array([np.nan, 1, np.inf], np.float32),
    }


def noisy(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    changed = dict(tensors)
    weight = tensors["layer.weight"]
    changed["layer.weight"] = weight + random.normal(0, 1e-4, weight.shape).astype(np.float32)
    changed["ids"] = tensors["ids"] + 1
    return changed


def problems(found: Comparison) -> dict[str, str]:
    return {row.name: row.problem for row in found.problems}


def test_figures_are_those_of_the_arrays(tmp_path, tensors):
    other = noisy(tensors)
    a, b = write(tmp_path / "a.safetensors", tensors), write(tmp_path / "b.safetensors", other)
    found = compare(a, b)
    assert (found.a_bytes, found.b_bytes) == (a.stat().st_size, b.stat().st_size)
    assert [row.name for row in found.tensors] == list(tensors)
    for row in found.tensors:
        x, y = tensors[row.name], other[row.name]
        assert row.errors == measure(x, y, math.prod(x.shape[1:]) if x.ndim > 1 else 0)
        assert row.file is None
    by_name = {row.name: row for row in found.tensors}
    assert by_name["ids"].errors.l1 == 9
    assert by_name["nan"].errors.exact
    assert by_name["layer.weight"].ratio == 1
    assert not found.exact
    floats = [by_name[name].errors for name in tensors if name not in ("ids", "mask")]
    assert found.total.count == sum(errors.count for errors in floats)
    assert found.total.l1 == by_name["layer.weight"].errors.l1


@pytest.mark.parametrize("chunk", [64, 1000, 1 << 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_chunks_and_threads_change_nothing_but_rounding(tmp_path, tensors, chunk, threads):
    a = write(tmp_path / "a.safetensors", tensors)
    b = write(tmp_path / "b.safetensors", noisy(tensors))
    wanted = {row.name: row.errors for row in compare(a, b, threads=1).tensors}
    paths = []
    for name, elements in (("a", chunk), ("b", 7 * chunk)):
        paths.append(tmp_path / f"{name}.tc.safetensors")
        with (
            open_checkpoint(tmp_path / f"{name}.safetensors") as source,
            paths[-1].open("wb+") as file,
        ):
            options = CompressOptions(chunk_elements=min(elements, 1 << 20))
            compress_source(source, file, options)
    for x, y in ((a, paths[1]), (paths[0], b), tuple(paths)):
        for row in compare(x, y, threads=threads).tensors:
            assert row.errors.count == wanted[row.name].count
            assert row.errors.max_abs == wanted[row.name].max_abs
            assert row.errors.l2 == pytest.approx(wanted[row.name].l2, rel=1e-12)
    for x, y in ((a, paths[0]), (paths[0], a)):
        assert compare(x, y, threads=threads).exact


def test_formats_are_compared_with_each_other(tmp_path):
    torch = pytest.importorskip("torch")
    weight = np.random.default_rng(2).normal(0, 1, (40, 30)).astype(np.float32)
    arrays = {"x": weight, "n": np.arange(5)}
    np.savez(tmp_path / "a.npz", **arrays)
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, tmp_path / "a.pt")
    write(tmp_path / "a.safetensors", arrays)
    for name in ("a.npz", "a.pt", "a.safetensors"):
        tensorcomp.compress(tmp_path / name, tmp_path / f"{name}.tc.safetensors")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 6
    for first in files:
        for second in files:
            found = compare(first, second)
            assert found.exact
            assert len(found.tensors) == 2


def test_a_wider_or_narrower_type_is_compared_by_value(tmp_path, tensors):
    weight = tensors["layer.weight"]
    a = write(tmp_path / "a.safetensors", {"x": weight, "y": weight, "n": np.arange(9)})
    b = write(
        tmp_path / "b.safetensors",
        {"x": weight.astype(np.float64), "y": weight.astype(ml_dtypes.bfloat16), "n": np.eye(3)},
    )
    found = compare(a, b)
    by_name = {row.name: row for row in found.tensors}
    assert by_name["x"].errors.exact
    assert by_name["y"].errors.rel_l2 == pytest.approx(2**-9.2, rel=0.1)
    assert by_name["y"].ratio == 2
    assert problems(found) == {"n": "shapes differ: 9 and 3×3"}


def test_what_cannot_be_compared_says_why(tmp_path):
    x = np.zeros((2, 3), np.float32)
    a = write(
        tmp_path / "a.safetensors",
        {
            "both": x,
            "shape": x,
            "gone": x,
            "complex": x,
            "packed": ("F4", (4,), b"ab"),
            "same": ("F4", (4,), b"ab"),
            "unknown": ("F4", (6,), b"abc"),
        },
    )
    b = write(
        tmp_path / "b.safetensors",
        {
            "both": x,
            "shape": x.T.copy(),
            "complex": x.astype(np.complex64),
            "packed": ("F4", (4,), b"ac"),
            "same": ("F4", (4,), b"ab"),
            "unknown": np.zeros(6, np.float32),
            "new": x,
        },
    )
    found = compare(a, b)
    assert problems(found) == {
        "shape": "shapes differ: 2×3 and 3×2",
        "gone": "only in a",
        "complex": "types F32 and C64 cannot be compared",
        "packed": "F4 has no known values, and the bytes differ",
        "unknown": "types F4 and F32 cannot be compared",
        "new": "only in b",
    }
    assert found.tensors[-1].name == "new"
    assert not found.exact
    assert next(row for row in found.tensors if row.name == "same").errors.exact
    assert found.total.count == 6


def test_what_shares_no_tensor_is_not_exact(tmp_path):
    from tensorcomp.reports.comparison_tables import comparison_table

    a = write(tmp_path / "a.safetensors", {"x": np.ones(4, "f4")})
    b = write(tmp_path / "b.safetensors", {"y": np.ones(4, "f4")})
    found = compare(a, b)
    assert not found.exact
    table = comparison_table(found)
    assert "exact" not in table.lines()[-1]
    assert table.csv()[-1].endswith(7 * ",")


def test_tied_names_are_counted_once(tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.arange(60, dtype=torch.float32).reshape(6, 10)
    torch.save({"embed": weight, "head": weight.detach()}, tmp_path / "a.pt")
    write(tmp_path / "one.safetensors", {"embed": weight.numpy()})
    write(tmp_path / "both.safetensors", {"embed": weight.numpy(), "head": weight.numpy()})
    tied = tmp_path / "a.pt"
    tensorcomp.compress(tied, tmp_path / "a.pt.tc.safetensors")
    assert len(compare(tied, tmp_path / "a.pt.tc.safetensors").tensors) == 1
    assert compare(tied, tmp_path / "one.safetensors").exact
    assert len(compare(tied, tmp_path / "one.safetensors").tensors) == 1
    both = compare(tied, tmp_path / "both.safetensors")
    assert both.exact
    assert len(both.tensors) == 2
    missing = compare(tmp_path / "both.safetensors", tmp_path / "one.safetensors")
    assert problems(missing) == {"head": "only in a"}


def test_folders_are_matched_by_file_then_by_folder_then_by_name(tmp_path, tensors):
    names = list(tensors)
    shards = tmp_path / "shards"
    write(shards / "model-00001-of-00002.safetensors", {n: tensors[n] for n in names[:4]})
    write(shards / "model-00002-of-00002.safetensors", {n: tensors[n] for n in names[4:]})
    whole = write(tmp_path / "whole.safetensors", tensors)
    assert compare(shards, whole).exact
    assert compare(whole, shards).exact
    assert compare(whole, shards).tensors[0].file == "whole.safetensors"
    assert compare(shards, whole).tensors[-1].file == "model-00002-of-00002.safetensors"
    packed = tensorcomp.compress(shards).path
    assert compare(packed, shards).exact
    assert compare(whole, packed).exact


def test_a_name_that_is_in_two_folders_is_matched_within_each(tmp_path):
    for side in ("a", "b"):
        for number, part in enumerate(("text", "vision")):
            write(tmp_path / side / part / "model.safetensors", {"norm": np.full(3, number, "f4")})
    assert compare(tmp_path / "a", tmp_path / "b").exact
    moved = tmp_path / "c" / "vision" / "other.safetensors"
    write(moved, {"norm": np.full(3, 1, "f4")})
    found = compare(tmp_path / "a", tmp_path / "c")
    assert [row.problem for row in found.tensors] == ["only in a", ""]
    assert found.tensors[1].errors.exact


def test_unreadable_and_damaged_files_are_errors(tmp_path, tensors):
    a = write(tmp_path / "a.safetensors", tensors)
    with pytest.raises(CheckpointError, match="no such file"):
        compare(a, tmp_path / "b.safetensors")
    tensorcomp.compress(a, tmp_path / "b.tc.safetensors")
    data = bytearray((tmp_path / "b.tc.safetensors").read_bytes())
    data[-3000] ^= 1
    (tmp_path / "b.tc.safetensors").write_bytes(data)
    with pytest.raises(FormatError, match="damaged"):
        compare(a, tmp_path / "b.tc.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no"):
        compare(a, tmp_path / "empty")


def test_the_json_of_infinite_errors_is_strict(tmp_path):
    from tensorcomp.reports.comparison_tables import comparison_json

    a = write(tmp_path / "a.safetensors", {"x": np.zeros(4, "f4"), "y": np.ones(2, "f4")})
    b = write(tmp_path / "b.safetensors", {"x": np.ones(4, "f4"), "y": np.full(2, np.nan, "f4")})
    value = json.loads(json.dumps(comparison_json(compare(a, b)), allow_nan=False))
    x, y = value["tensors"]
    assert (x["l1"], x["rel_l2"], x["snr_db"], x["cosine"]) == (4, "inf", "-inf", None)
    assert (y["l1"], y["max_abs_error"], y["problem"]) == ("inf", "inf", None)
