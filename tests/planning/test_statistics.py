import numpy as np
import pytest
from safetensors.numpy import save_file

from tensorcomp.errors import CheckpointError, PruningError
from tensorcomp.planning.statistics import Statistics

ARRAYS = {
    "snip": {
        "a/b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "c": np.ones(2, np.float32),
    },
    "synflow": {"c": np.array([1e-300, 2.0])},
}


def test_files_give_back_what_was_measured(tmp_path):
    Statistics(ARRAYS, batches=3, samples=96).save(tmp_path / "s.safetensors")
    loaded = Statistics.load(tmp_path / "s.safetensors")
    assert (loaded.batches, loaded.samples) == (3, 96)
    assert set(loaded.arrays) == set(ARRAYS)
    for statistic, tensors in ARRAYS.items():
        for name, array in tensors.items():
            np.testing.assert_array_equal(loaded.of(statistic, name), array)
            assert loaded.of(statistic, name).dtype == array.dtype


def test_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "s.safetensors"
    Statistics(ARRAYS).save(path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="exists"):
        Statistics({"snip": {}}).save(path)
    assert path.read_bytes() == before
    Statistics({"snip": {"w": np.ones(1, np.float32)}}).save(path, force=True)
    assert list(Statistics.load(path).arrays) == ["snip"]


def test_what_was_not_measured_is_said():
    statistics = Statistics(ARRAYS)
    with pytest.raises(PruningError, match=r"'fisher', got snip, synflow; run calibrate"):
        statistics.of("fisher", "c")
    with pytest.raises(PruningError, match=r"'fisher', got none; run calibrate with fisher"):
        Statistics({}).of("fisher", "c")
    with pytest.raises(PruningError, match=r"statistic 'synflow' of tensor 'a/b.weight', got none"):
        statistics.of("synflow", "a/b.weight")


@pytest.mark.parametrize(
    ("tensors", "metadata", "words"),
    [
        ({"w": np.ones(1)}, None, "expected a statistics file"),
        ({"w": np.ones(1)}, {"tensorcomp.statistics": "{"}, "expected a statistics file"),
        ({"w": np.ones(1)}, {"tensorcomp.statistics": "[]"}, "expected a statistics file"),
        ({"w": np.ones(1)}, {"tensorcomp.statistics": "[" * 99_999}, "expected a statistics file"),
        (
            {},
            {"tensorcomp.statistics": '{"version": 9, "batches": 1, "samples": 1}'},
            "version 2 or before, got 9",
        ),
        (
            {},
            {"tensorcomp.statistics": '{"version": 1, "batches": -1, "samples": 1}'},
            "expected counts",
        ),
        (
            {"w": np.ones(1, np.float32)},
            {"tensorcomp.statistics": '{"version": 1, "batches": 1, "samples": 1}'},
            "got 'w'",
        ),
        (
            {"snip/w": np.ones(1, np.int8)},
            {"tensorcomp.statistics": '{"version": 1, "batches": 1, "samples": 1}'},
            "of I8",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, tensors, metadata, words):
    path = tmp_path / "s.safetensors"
    save_file(tensors, path, metadata)
    with pytest.raises(CheckpointError, match=words):
        Statistics.load(path)
