"""The job behind the verb bench: what is measured, on what, and what is counted."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibrated_checkpoints import statistics, write_model
from calibrated_checkpoints import tensors as network_tensors
from safetensors.numpy import save_file

from tensorcomp.api.compress import compress
from tensorcomp.benchmark.run import bench
from tensorcomp.benchmark.samples import SourceTensor, take_pieces
from tensorcomp.benchmark.tables import benchmark_json, benchmark_notes
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.errors import CheckpointError, PlanError
from tensorcomp.pipeline.strategies import LOSSLESS, code, strategies
from tensorcomp.progress import Progress

UNIFORM = Strategy("uniform", "uniform($step)", 4)
LINEAR = "encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        LINEAR: random.normal(0, 0.02, (96, 64)).astype(np.float32),
        "encoder.layer.0.intermediate.dense.weight": random.normal(0, 0.1, (64, 128)).astype("f4"),
        "encoder.layer.0.intermediate.dense.bias": random.normal(0, 1, 5000).astype(np.float32),
        "encoder.small.weight": random.normal(0, 1, (8, 8)).astype(np.float32),
        "position_ids": np.arange(64),
    }


def written(folder: Path, tensors: dict[str, np.ndarray]) -> Path:
    path = folder / "model.safetensors"
    save_file(tensors, path)
    return path


@pytest.fixture
def model(tmp_path: Path, tensors: dict[str, np.ndarray]) -> Path:
    return written(tmp_path, tensors)


def only(found: Any) -> Any:
    (row,) = found.rows
    return row


def test_a_strategy_counts_what_the_file_holds(model, tmp_path):
    row = only(bench(model, strategies=[UNIFORM]))
    limit = bench(model, strategies=[]).limit
    done = compress(model, tmp_path / "out.tc.safetensors", codecs=["all=raw"])
    assert done.files  # every byte of the blobs but those of the two matrices is lossless
    blobs = compress(model, tmp_path / "x.tc.safetensors").summary.tensors
    others = [blob for blob in blobs if blob.role not in ("attention.q", "mlp")]
    assert limit.other_bytes == sum(blob.stored for blob in others)
    assert row.bits == pytest.approx(8 * row.stored / limit.all_weights)


def test_errors_are_of_the_weights_that_may_lose(model, tensors):
    row = only(bench(model, strategies=[UNIFORM]))
    assert row.snr_db == pytest.approx(22.5, abs=0.5)
    assert row.lowest_snr_db <= row.snr_db + 0.1
    assert 0.5 < row.gap < 0.9  # the scales differ; see below
    assert row.refused == 0
    assert row.encode_speed > 0
    assert row.decode_speed > 0


def test_gap_is_the_distance_to_the_limit(model):
    found = bench(model, strategies=[UNIFORM])
    row = only(found)
    assert row.gap == pytest.approx(row.bits - found.limit.rate(row.snr_db))
    assert found.lossy_weights == found.measured_weights == 96 * 64 + 64 * 128
    assert not found.sampled


def test_one_step_for_all_is_as_near_to_the_limit_as_gaussian_weights_are(tmp_path):
    random = np.random.default_rng(2)
    tensors = {
        f"layer.{n}.mlp.weight": random.normal(0, 0.02 * 2**n, (256, 256)).astype(np.float32)
        for n in range(3)
    }
    model = written(tmp_path, tensors)
    common = Strategy("c", "uniform($step)", 5, common=True)
    each, one = bench(model, strategies=[Strategy("u", "uniform($step)", 5), common]).rows
    assert 0.24 < one.gap < 0.31
    assert each.gap > one.gap + 0.3
    assert each.snr_db - each.lowest_snr_db < 0.1
    assert one.snr_db - one.lowest_snr_db > 6


def test_lossless_strategies_are_exact(model):
    found = bench(model, strategies=strategies()[:4])
    assert len(found.rows) == 4
    for row in found.rows:
        assert row.snr_db is row.gap is row.lowest_snr_db is None
        assert row.refused == 0
        assert row.rel_l2 == 0


def test_what_a_codec_refuses_is_lossless_and_counted(tmp_path, tensors):
    tensors[LINEAR][3, 3] = 1e6  # beyond fp16
    model = written(tmp_path, tensors)
    row = only(bench(model, strategies=[Strategy("fp16", 'cast("F16")')]))
    assert row.refused == 1
    assert row.snr_db is not None
    alone = written(tmp_path, {LINEAR: tensors[LINEAR]})
    row = only(bench(alone, strategies=[Strategy("fp16", 'cast("F16")')]))
    assert row.refused == 1
    assert row.snr_db is None


def test_every_strategy_runs_on_odd_tensors(tmp_path):
    random = np.random.default_rng(3)
    tensors = {
        "zeros.weight": np.zeros((64, 80), np.float32),
        "doubles.weight": random.normal(0, 1, (5, 7, 11, 13)),
        "row.weight": random.normal(0, 1, (1, 4100)).astype(np.float32),
        "halves.weight": random.normal(0, 1, (4097, 1)).astype(np.float16),
        "tiny.weight": (random.normal(0, 1, (64, 65)) * 1e-42).astype(np.float32),
        "outlier.weight": np.pad(np.ones((64, 64), np.float32) * 1e-3, ((1, 0), (0, 0))),
    }
    tensors["outlier.weight"][0, 0] = 1e4
    found = bench(written(tmp_path, tensors), profile="mlp")
    assert len(found.limit.weights) == len(tensors)
    for row in found.rows:
        assert math.isfinite(row.bits)
        assert row.snr_db is None or row.snr_db > -10


def test_tensors_that_are_not_finite_stay_lossless(tmp_path, tensors):
    tensors[LINEAR][0, 0] = np.nan
    found = bench(written(tmp_path, tensors), strategies=[UNIFORM])
    assert len(found.limit.weights) == 1
    assert found.lossy_weights == 64 * 128
    assert not found.sampled


def test_nothing_to_lose_is_an_error(tmp_path):
    model = written(tmp_path, {"norm.weight": np.ones(5000, np.float32), "n": np.arange(9)})
    with pytest.raises(PlanError, match="no tensor may lose anything"):
        bench(model)


def test_a_compressed_file_is_refused(model, tmp_path):
    compressed = compress(model, tmp_path / "x.tc.safetensors").path
    with pytest.raises(CheckpointError, match="compressed it already"):
        bench(compressed)


def test_a_folder_is_one_checkpoint(tmp_path, tensors):
    names = list(tensors)
    folder = tmp_path / "folder"
    folder.mkdir()
    save_file({name: tensors[name] for name in names[:1]}, folder / "a.safetensors")
    save_file({name: tensors[name] for name in names[1:]}, folder / "b.safetensors")
    whole = bench(written(tmp_path, tensors), strategies=[UNIFORM])
    found = bench(folder, strategies=[UNIFORM])
    assert found.name == "folder"
    assert (found.weights, found.tensors) == (whole.weights, whole.tensors)
    assert only(found).stored == only(whole).stored
    assert only(found).snr_db == pytest.approx(only(whole).snr_db)


def test_threads_change_no_figure_but_speeds(model):
    one, two = (bench(model, strategies=strategies()[4:12], threads=threads) for threads in (1, 2))
    for a, b in zip(one.rows, two.rows, strict=True):
        assert (a.stored, a.snr_db, a.gap) == (b.stored, b.snr_db, b.gap)


def test_a_sample_tells_about_what_the_whole_tells(tmp_path):
    random = np.random.default_rng(4)
    tensors = {
        f"layer.{n}.mlp.weight": random.normal(0, 0.1 + 0.01 * n, (128, 256)).astype(np.float32)
        for n in range(12)
    }
    tensors["embed_tokens.weight"] = random.normal(0, 1, (20_000, 64)).astype(np.float32)
    model = written(tmp_path, tensors)
    whole = bench(model, strategies=[UNIFORM], most=None)
    found = bench(model, strategies=[UNIFORM], most=900_000)
    assert found.sampled
    assert found.measured_weights < 1_000_000
    assert found.lossy_weights == whole.lossy_weights == whole.measured_weights
    assert only(found).bits == pytest.approx(only(whole).bits, abs=0.02)
    assert only(found).snr_db == pytest.approx(only(whole).snr_db, abs=0.1)
    assert only(found).ratio == pytest.approx(only(whole).ratio, rel=0.01)
    assert found.limit.rate(30) == pytest.approx(whole.limit.rate(30), abs=0.05)


def stored(name: str, role: str, array: np.ndarray) -> SourceTensor:
    dtype = {"f4": "F32", "i8": "I64"}[array.dtype.str[1:]]
    info = TensorInfo(name, dtype, array.shape, array.nbytes)
    return SourceTensor(info, role, lambda _name: array.reshape(-1).view(np.uint8))


def test_pieces_stand_for_all_weights_of_every_role():
    tensors = [stored(f"{n}", "mlp", np.full((64, 64), n, np.float32)) for n in range(10)]
    tensors += [stored("e", "embedding", np.zeros((40_000, 100), np.float32))]
    tensors += [stored("0-d", "scalar", np.float32(2).reshape(()))]
    tensors += [stored("none", "other", np.zeros((0, 3), np.float32))]
    pieces = take_pieces(tensors, 600_000)
    assert sum(piece.weights for piece in pieces) == pytest.approx(64 * 64 * 10 + 4_000_001)
    names = [piece.name for piece in pieces]
    assert {"e", "0-d", "none"} < set(names)
    assert 3 <= len([name for name in names if name.isdigit()]) < 10
    table = pieces[names.index("e")]
    assert table.grid.shape == (10_000, 100)
    assert table.load().shape == table.grid.shape
    assert table.share == 4
    whole = take_pieces(tensors, None)
    assert [piece.name for piece in whole] == [tensor.info.name for tensor in tensors]
    assert all(piece.share == 1 for piece in whole)


def test_moments():
    piece = take_pieces([stored("x", "mlp", np.array([1, 2, 3, 6], np.float32))], None)[0]

    assert (*piece.moments, piece.variance) == (3, 12.5, 3.5)
    assert piece.finite
    for value in (np.nan, np.inf):
        piece = take_pieces([stored("x", "mlp", np.array([value, 1], np.float32))], None)[0]
        assert not piece.finite


def test_progress_reaches_its_end(model):
    class Counted(Progress):
        total = done = begun = 0

        def begin_folder(self, nbytes: int) -> None:
            self.total = nbytes

        def begin(self, tensors: int, nbytes: int) -> None:
            self.begun += tensors

        def advance(self, name: str, nbytes: int) -> None:
            self.done += nbytes

    counted = Counted()
    bench(model, strategies=strategies()[:3], progress=counted)
    assert counted.total == counted.done == 3 * 4 * (96 * 64 + 64 * 128)
    assert counted.begun == 6


def test_a_tensor_of_several_chunks_is_counted_as_the_file_holds_it(tmp_path):
    array = np.random.default_rng(8).normal(0, 1, (3000, 1000)).astype(np.float32)
    model = written(tmp_path, {"a.weight": array})
    report = compress(model, tmp_path / "x.tc.safetensors", codecs=["all=kmeans(16)"])
    (tensor,) = report.summary.tensors
    grid = chunk_grid("F32", array.shape, array.nbytes)
    assert grid.count > 1
    with open_checkpoint(model) as checkpoint:
        data = checkpoint.read("a.weight").view(np.float32).reshape(array.shape)
        found = code(Strategy("k", "kmeans(16)"), data, grid, 1.0)
        assert found.nbytes == tensor.stored
        assert not found.refused
        exact = code(LOSSLESS, data, grid, 1.0)
        assert (exact.decode() == data).all()


def test_statistics_predict_the_loss(tmp_path):
    path = write_model(tmp_path / "model.safetensors")
    plain = Strategy("trellis, 3 bits", "trellis($step)", 3)
    found = bench(path, strategies=[LOSSLESS, plain], statistics=statistics())
    losses = {row.label: row.loss for row in found.rows}
    assert losses["lossless"] == 0
    assert 0 < losses["trellis with feedback, 3 bits"] < losses["trellis, 3 bits"] / 3
    assert losses["trellis with feedback, 4 bits"] < losses["trellis with feedback, 3 bits"] / 2
    assert all(row.refused == 0 for row in found.rows)
    assert "Loss: " in "".join(benchmark_notes(found))
    records = benchmark_json(found)["strategies"]
    assert [record["predicted_loss"] for record in records] == list(losses.values())
    without = bench(path, strategies=[plain])
    assert [row.loss for row in without.rows] == [None]
    assert "Loss: " not in "".join(benchmark_notes(without))


def test_every_second_row_stands_for_all(tmp_path, monkeypatch):
    path = write_model(tmp_path / "model.safetensors")
    (whole,) = bench(path, strategies=[UNIFORM], statistics=statistics()).rows[:1]
    monkeypatch.setattr("tensorcomp.benchmark.samples._MAX_PIECE", 4000)
    sampled = bench(path, strategies=[UNIFORM], statistics=statistics(), most=20_000)
    assert sampled.sampled
    assert 0 < sampled.rows[0].loss < 2 * whole.loss


def test_statistics_of_another_model_are_refused(tmp_path):
    changed = {name: value * np.float32(1.5) for name, value in network_tensors().items()}
    with pytest.raises(CheckpointError, match="statistics of another model"):
        bench(written(tmp_path, changed), strategies=[UNIFORM], statistics=statistics())
