"""The report on zeros: counted by hand, the same of raw and compressed files."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp.errors import CheckpointError, PruningError
from tensorcomp.planning.budgets import Budget
from tensorcomp.pruning import sparsity_report
from tensorcomp.pruning.keep_indices import KeptSlices


def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    first = random.standard_normal((40, 30)).astype(np.float32)
    first[::4] = 0
    first[:, 3] = -0.0
    return {
        "a.weight": first,
        "a.bias": np.array([0, 1, 0], np.float32),
        "b.weight": random.standard_normal((9, 8)).astype(np.float16),
        "ids": np.zeros((5, 6), np.int32),
        "half": np.zeros((2, 3), ml_dtypes.bfloat16),
    }


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file({name: array for name, array in tensors().items() if name != "half"}, path)
    return path


def test_by_hand():
    report = sparsity_report(tensors(), threads=2)
    assert [row.name for row in report.rows] == ["a.weight", "half"]
    row = report.rows[0]
    assert (row.elements, row.zeros, row.negative_zeros) == (1200, 300 + 30, 40)
    assert (row.dead_rows, row.dead_columns) == (10, 1)
    assert row.sparsity == 330 / 1200
    assert row.density == 870 / 1200
    assert row.stored is None
    assert (report.elements, report.zeros) == (1200 + 3 + 72 + 6, 330 + 2 + 0 + 6)
    assert report.sparsity == 338 / 1281
    assert report.negative_zeros == 40
    assert report.total("dense") == sum(row.sizes["dense"] for row in report.rows)
    assert report.best_bytes == sum(min(row.sizes.values()) for row in report.rows)


def test_kept_slices_are_those_of_all_weights():
    report = sparsity_report(tensors())
    assert set(report.kept) == {"a.weight", "b.weight", "half"}
    assert report.kept["half"] == KeptSlices((2, 3), (), ())
    assert report.kept["b.weight"].dead_rows == 0


def test_every_tensor_is_listed_if_asked():
    report = sparsity_report(tensors(), every=True)
    rows = {row.name: row for row in report.rows}
    assert list(rows) == ["a.bias", "a.weight", "b.weight", "half", "ids"]
    assert rows["a.bias"].dead_rows is None
    assert rows["ids"].zeros == 30
    assert report.elements == sparsity_report(tensors()).elements  # integers are no weights


def test_files_say_the_same(raw, tmp_path):
    packed = tensorcomp.compress(raw).path
    given = {name: array for name, array in tensors().items() if name != "half"}
    wanted, plain, found = (sparsity_report(source) for source in (given, raw, packed))
    for report in (plain, found):
        assert (report.elements, report.zeros) == (wanted.elements, wanted.zeros)
        for row, other in zip(report.rows, wanted.rows, strict=True):
            assert (row.zeros, row.kept, row.sizes) == (other.zeros, other.kept, other.sizes)
    assert plain.rows[0].stored == 4800
    assert found.rows[0].stored == found.rows[0].sizes["entropy"]


def test_what_lossy_files_keep_of_zeros(tmp_path):
    random = np.random.default_rng(0)
    keep = random.random((200, 300)) < 0.1
    values = random.standard_normal((200, 300))
    array = np.where(keep, values + np.sign(values), 0).astype(np.float32)
    for effort in ("fast", "balanced", "max"):
        path = tmp_path / f"{effort}.tc.safetensors"
        tensorcomp.save_file({"w": array}, path, budget=Budget(min_snr=30), effort=effort)
        (row,) = sparsity_report(path).rows
        assert row.zeros == (~keep).sum(), effort
        assert row.negative_zeros == 0


def test_folders(raw, tmp_path):
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    for name in ("model.safetensors", "deep/model.safetensors"):
        (folder / name).write_bytes(raw.read_bytes())
    report = sparsity_report(folder)
    assert sorted(row.file or "" for row in report.rows) == [
        "deep/model.safetensors",
        "model.safetensors",
    ]
    assert len(report.kept) == 4
    assert sum(":" in name for name in report.kept) == 2


def test_masks_are_taken_as_applied():
    mask = np.ones((9, 8), np.bool_)
    mask[2] = False
    report = sparsity_report({"b.weight": tensors()["b.weight"]}, masks={"b.weight": mask})
    assert report.rows[0].zeros == 8
    assert report.rows[0].dead_rows == 1


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ({"none": np.ones((9, 8), np.bool_)}, "no such tensor"),
        ({"b.weight": np.ones((8, 9), np.bool_)}, r"to be bool \[9, 8\], .* got bool \[8, 9\]"),
        ({"b.weight": np.ones((9, 8))}, "got float64"),
    ],
)
def test_masks_that_do_not_fit(masks, words):
    with pytest.raises(PruningError, match=words):
        sparsity_report(tensors(), masks=masks)


def test_torch_tensors_are_taken():
    torch = pytest.importorskip("torch")
    report = sparsity_report({"w": torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.bfloat16)})
    assert report.rows[0].dtype == "BF16"
    assert report.rows[0].zeros == 3


def test_nothing_to_report(tmp_path):
    report = sparsity_report({})
    assert (report.rows, report.sparsity, report.density, report.best_bytes) == ((), 0, 1, 0)
    with pytest.raises(CheckpointError):
        sparsity_report(tmp_path / "none.safetensors")


def test_masks_are_no_weights_and_count_where_they_are_used(tmp_path):
    rng = np.random.default_rng(0)
    mask = (rng.random((50, 40)) < 0.3).astype(np.float32)
    tensors = {
        "fc.weight_orig": rng.standard_normal((50, 40)).astype(np.float32),
        "fc.weight_mask": mask,
        "open.weight_orig": rng.standard_normal((50, 40)).astype(np.float32),
        "open.weight_mask": np.ones((50, 40), np.float32),
        "unnamed": (rng.random((50, 40)) < 0.5).astype(np.float16),
    }
    save_file(tensors, tmp_path / "w.safetensors")
    tensorcomp.save_file(tensors, tmp_path / "w.tc.safetensors")
    zeros = np.count_nonzero(mask == 0)
    for source in (tensors, tmp_path / "w.safetensors", tmp_path / "w.tc.safetensors"):
        report = sparsity_report(source)
        assert (report.elements, report.zeros) == (4000, zeros)
        assert [(row.name, row.zeros) for row in report.rows] == [("fc.weight_orig", zeros)]
        assert {row.name: row.zeros for row in sparsity_report(source, every=True).rows} == {
            "fc.weight_orig": zeros,
            "fc.weight_mask": zeros,
            "open.weight_orig": 0,
            "open.weight_mask": 0,
            "unnamed": np.count_nonzero(tensors["unnamed"] == 0),
        }
