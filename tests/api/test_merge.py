"""Parts of a folder, in any order, by processes that die: the same files as from one process."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sharded_models import contents, make_shards

import tensorcomp
from tensorcomp import Budget
from tensorcomp.container.job_folder import begin_job, read_job
from tensorcomp.errors import CheckpointError, OptionError, PlanError, VerificationError
from tensorcomp.io.files import atomic_file
from tensorcomp.io.locations import location
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.pipeline.parts import make_job

LARGEST = "model-00004-of-00004"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_shards(tmp_path / "m")


def compress_parts(model: Path, count: int, **options: Any) -> None:
    for number in reversed(range(count)):
        tensorcomp.compress(model, part=(number, count), threads=1, **options)


def shards_made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by each shard that is compressed."""
    made: list[str] = []
    import tensorcomp.pipeline.shard_task as module

    real = module._compress
    monkeypatch.setattr(
        module,
        "_compress",
        lambda task, *rest: (made.append(task.source.stem), real(task, *rest))[1],
    )
    return made


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"effort": "fast", "keep_names": True},
        {"budget": Budget(min_snr=20)},
        {"codecs": "mlp=affine(4, 64)"},
    ],
    ids=["lossless", "kept names", "bound", "tree"],
)
def test_parts_are_what_one_process_writes(model: Path, count: int, options: dict[str, Any]):
    serial = tensorcomp.compress(model, model.parent / "serial", **options)
    compress_parts(model, count, **options)
    merged = tensorcomp.merge(model)
    assert contents(merged.path) == contents(serial.path)
    assert merged.summary.to_dict() == serial.summary.to_dict()
    assert not (model.parent / "m.tc.partial").exists()
    restored = tensorcomp.decompress(merged.path, model.parent / "restored")
    assert contents(restored).keys() == contents(model).keys()
    if not options.keys() & {"budget", "codecs"}:
        assert contents(restored) == contents(model)


def test_a_size_is_planned_once_and_kept_by_parts(model: Path, tmp_path: Path):
    with pytest.raises(PlanError, match="make a plan first, by tensorcomp plan FOLDER"):
        tensorcomp.compress(model, part="0/2", budget=Budget(bits_per_weight=4))
    plan = tmp_path / "plan.json"
    plan.write_text(tensorcomp.plan(model, budget=Budget(bits_per_weight=4)).to_json())
    serial = tensorcomp.compress(model, tmp_path / "serial", plan=plan)
    compress_parts(model, 3, plan=plan)
    merged = tensorcomp.merge(model)
    assert contents(merged.path) == contents(serial.path)
    assert merged.output_bytes * 8 <= 4 * merged.summary.weights


def test_a_plan_that_takes_more_than_its_size_is_not_merged(model: Path, tmp_path: Path):
    text = tensorcomp.plan(model, budget=Budget(bits_per_weight=4)).to_json()
    plan = tmp_path / "plan.json"
    plan.write_text(text.replace('"bits_per_weight": 4', '"bits_per_weight": 3'))
    compress_parts(model, 2, plan=plan)
    with pytest.raises(VerificationError, match=r"bytes at most, as planned, got [\d,]+ more"):
        tensorcomp.merge(model)
    assert not (tmp_path / "m.tc").exists()


def test_statistics_and_a_plan_are_obeyed_by_parts(model: Path, tmp_path: Path):
    from tensorcomp.planning.statistics import Statistics

    name = "layers.1.mlp.weight"  # in one of the shards
    moments = np.diag(np.arange(1, 257, dtype=np.float32))
    weights = tensorcomp.load_file(model / "model-00002-of-00004.safetensors")[name]
    measured = Statistics(
        {"second_moment": {name: moments}, "row_weight": {name: np.ones(len(weights), np.float32)}},
        positions={name: 1000},
    )
    measured.save(stats := tmp_path / "stats.safetensors")
    with pytest.raises(PlanError, match="make a plan first"):
        tensorcomp.compress(model, part="0/2", statistics=stats, budget=Budget(min_snr=20))
    text = tensorcomp.plan(model, statistics=stats, budget=Budget(bits_per_weight=4)).to_json()
    (tmp_path / "plan.json").write_text(text)
    options = {"plan": tmp_path / "plan.json", "statistics": stats}
    serial = tensorcomp.compress(model, tmp_path / "serial", **options)
    compress_parts(model, 2, **options)
    assert contents(tensorcomp.merge(model).path) == contents(serial.path)
    for name in ("plan.json", "stats.safetensors"):
        location(f"memory://obeyed/{name}").write_bytes((tmp_path / name).read_bytes())
    urls = {"plan": "memory://obeyed/plan.json", "statistics": "memory://obeyed/stats.safetensors"}
    for given in (urls, {name: location(url) for name, url in urls.items()}):
        shutil.rmtree(tmp_path / "m.tc")
        compress_parts(model, 2, **given)
        assert contents(tensorcomp.merge(model).path) == contents(serial.path)


def test_what_is_finished_is_left_as_it_is(model: Path, monkeypatch: pytest.MonkeyPatch):
    tensorcomp.compress(model, part="0/2")
    made = shards_made(monkeypatch)
    again = tensorcomp.compress(model, part="0/2")
    assert (made, again.reused) == ([], len(again.files))
    tensorcomp.compress(model, part="0/1")  # of another number of parts
    assert len(made) == 6 - again.reused
    assert tensorcomp.merge(model).reused == 0


@pytest.mark.parametrize("fault", ["cut", "flipped length", "no report", "damaged report", "gone"])
def test_what_is_not_whole_is_missed_and_made_again(
    model: Path, fault: str, monkeypatch: pytest.MonkeyPatch
):
    compress_parts(model, 2)
    partial = model.parent / "m.tc.partial"
    shard = partial / "shards" / f"{LARGEST}.tc.safetensors"
    report = partial / "reports" / f"{LARGEST}.tc.safetensors.json"
    if fault == "cut":
        os.truncate(shard, shard.stat().st_size - 1)
    elif fault == "flipped length":
        shard.write_bytes(b"\xff" + shard.read_bytes()[1:])
    elif fault == "damaged report":
        report.write_text(report.read_text()[:-20])
    else:
        (shard if fault == "gone" else report).unlink()
    with pytest.raises(VerificationError, match=f"lacks 1 of 6 shards.*{LARGEST}.*run part 0/2"):
        tensorcomp.merge(model)
    made = shards_made(monkeypatch)
    compress_parts(model, 2)
    assert made == [LARGEST]
    tensorcomp.merge(partial)
    assert tensorcomp.verify(model.parent / "m.tc", model)


def test_a_changed_source_is_compressed_again(model: Path, monkeypatch: pytest.MonkeyPatch):
    compress_parts(model, 2)
    changed = model / "adapter0.safetensors"
    save_file({"shared.weight": np.ones((48, 256), np.float32)}, changed)
    with pytest.raises(VerificationError, match=r"another source: 'adapter0\.safetensors'"):
        tensorcomp.merge(model)
    made = shards_made(monkeypatch)
    compress_parts(model, 2)
    assert made == ["adapter0"]
    serial = tensorcomp.compress(model, model.parent / "serial")
    assert contents(tensorcomp.merge(model.parent / "m.tc").path) == contents(serial.path)


def test_a_source_with_other_shards_is_not_merged(model: Path):
    compress_parts(model, 1)
    save_file({"new": np.ones(5000, np.float32)}, model / "new.safetensors")
    with pytest.raises(CheckpointError, match=r"when the first part began: 'new\.safetensors'"):
        tensorcomp.merge(model)


def test_other_options_are_refused(model: Path, tmp_path: Path):
    tensorcomp.compress(model, part="0/2", budget=Budget(min_snr=20), threads=1)
    for options in ({}, {"budget": Budget(min_snr=21)}, {"executor": None}):
        with pytest.raises(PlanError, match="was begun with another 'budget'; give the same"):
            tensorcomp.compress(model, part="1/2", **options)
    with pytest.raises(PlanError, match="another 'effort', 'keep_names'"):
        tensorcomp.compress(
            *(model, tmp_path / "m.tc"),
            part="1/2",
            budget=Budget(min_snr=20),
            effort="max",
            keep_names=True,
        )
    tensorcomp.compress(model, part="1/2", budget=Budget(min_snr=20), threads=2)
    tensorcomp.merge(model)


def test_a_plan_file_counts_by_what_is_in_it(model: Path, tmp_path: Path):
    text = tensorcomp.plan(model, budget=Budget(min_snr=20)).to_json()
    plans = [tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json"]
    for plan in plans:
        plan.write_text(text)
    plans[2].write_text(text.replace('"effort": "balanced"', '"effort": "fast"'))
    for plan in plans[:2]:
        tensorcomp.compress(model, part="0/2", plan=plan)
    with pytest.raises(PlanError, match="another 'plan'"):
        tensorcomp.compress(model, part="0/2", plan=plans[2])


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("prune", {"prune": tensorcomp.Pruning("magnitude", 0.5)}),
        ("or replace=True, got two", {"replace": True}),
    ],
)
def test_what_parts_cannot_do_is_refused(model: Path, words: str, options: dict[str, Any]):
    words = words.replace("prune", "pruning sees a model as a whole")
    with pytest.raises(PlanError, match=words):
        tensorcomp.compress(model, part="0/2", **options)
    assert not (model.parent / "m.tc.partial").exists()


def test_no_folder_no_parts(model: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match="expected a folder"):
        tensorcomp.compress(model / "adapter0.safetensors", part="0/2")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        tensorcomp.compress(tmp_path / "empty", part="0/2")
    assert not (tmp_path / "empty.tc.partial").exists()
    with pytest.raises(CheckpointError, match="lies in the input folder"):
        tensorcomp.compress(model, model / "x", part="0/2")
    with pytest.raises(OptionError, match="parts count from 0"):
        tensorcomp.compress(model, part="2/2")


def test_an_existing_output_is_kept_unless_forced(model: Path):
    tensorcomp.compress(model)
    with pytest.raises(CheckpointError, match="exists already"):
        tensorcomp.compress(model, part="0/1")
    compress_parts(model, 1, force=True, effort="fast")
    before = contents(model.parent / "m.tc")
    with pytest.raises(CheckpointError, match="exists already"):
        tensorcomp.merge(model)
    assert contents(model.parent / "m.tc") == before
    serial = tensorcomp.compress(model, model.parent / "serial", effort="fast")
    assert contents(tensorcomp.merge(model, force=True).path) == contents(serial.path)


def test_a_part_that_has_no_shards_is_done(model: Path):
    part = tensorcomp.compress(model, part="8/9")
    assert (part.files, part.ratio, part.summary.weights) == ({}, 0.0, 0)


def test_what_is_unfinished_is_no_model(model: Path):
    tensorcomp.compress(model, part="0/2")
    partial = model.parent / "m.tc.partial"
    done = len(list(partial.glob("reports/*.json")))
    for verb in (tensorcomp.inspect, tensorcomp.decompress, tensorcomp.compress, tensorcomp.plan):
        with pytest.raises(CheckpointError, match=f"is unfinished: {done} of 6 shards; run the"):
            verb(partial)


def test_the_report_tells_of_every_shard(model: Path):
    compress_parts(model, 2)
    merged = tensorcomp.merge(model)
    report = json.loads((model.parent / "m.tc.report.json").read_text())
    assert report["output_bytes"] == merged.output_bytes
    assert sorted(shard["file"] for shard in report["shards"]) == sorted(
        path.name for path in merged.outputs.values()
    )
    assert sum(shard["output_bytes"] for shard in report["shards"]) == merged.output_bytes
    assert all(shard["seconds"] > 0 and shard["host"] for shard in report["shards"])


def test_merging_again_finds_it_merged(model: Path):
    compress_parts(model, 2)
    first = tensorcomp.merge(model)
    for path in (model, model.parent / "m.tc"):
        again = tensorcomp.merge(path)
        assert again.summary.to_dict() == first.summary.to_dict()
        assert {*again.files} == {*first.files}
    with pytest.raises(CheckpointError, match="has no parts to merge"):
        tensorcomp.merge(make_shards(model.parent / "other"))


@pytest.mark.parametrize("after", ["renamed", "part moved", "part removed"])
def test_a_merge_that_was_killed_is_ended_by_the_next(
    model: Path, after: str, monkeypatch: pytest.MonkeyPatch
):
    serial = tensorcomp.compress(model, model.parent / "serial")
    compress_parts(model, 2)
    partial = model.parent / "m.tc.partial"
    with monkeypatch.context() as patch:
        patch.setattr("tensorcomp.api.merge.remove_job", lambda job: None)
        tensorcomp.merge(model)
    if after != "renamed":
        (partial / "shards").rename(partial / "merged")
    if after == "part removed":
        next(partial.glob("merged/*")).unlink()
        next(partial.glob("reports/*")).unlink()
    merged = tensorcomp.merge(model)
    assert contents(merged.path) == contents(serial.path)
    assert merged.summary.to_dict() == serial.summary.to_dict()
    assert not partial.exists()


def test_a_job_that_is_just_begun_is_not_taken_for_the_old_output(model: Path):
    tensorcomp.compress(model)
    begin(model)
    with pytest.raises(VerificationError, match=r"lacks 6 of 6 shards.*run part 0/2, 1/2 again"):
        tensorcomp.merge(model, force=True)


def test_two_workers_on_one_shard(model: Path):
    tensorcomp.compress(model, part="1/2")
    shard = model.parent / "m.tc.partial" / "shards" / f"{LARGEST}.tc.safetensors"
    with (
        atomic_file(shard, force=True),
        pytest.raises(CheckpointError, match="another run is writing it"),
    ):
        tensorcomp.compress(model, part="0/2")
    compress_parts(model, 2)
    tensorcomp.merge(model)


def test_a_damaged_job_is_told_of(model: Path):
    tensorcomp.compress(model, part="1/2")
    job = model.parent / "m.tc.partial" / "job.json"
    for text in (
        "{",
        "{}",
        "[]",
        '{"tensorcomp_job": 2}',
        job.read_text().replace("sizes", "size"),
    ):
        job.write_text(text)
        for run in (
            lambda: tensorcomp.compress(model, part="0/2"),
            lambda: tensorcomp.merge(model),
        ):
            with pytest.raises(CheckpointError, match="is not what this version writes of a job"):
                run()


def renamed(job: dict[str, Any], name: Any) -> dict[str, Any]:
    return job["outputs"] | {f"{LARGEST}.safetensors": name}


@pytest.mark.parametrize(
    "change",
    [
        *(
            lambda job, name=name: {"outputs": renamed(job, name)}
            for name in ("../../../x", "a/../../../x", "/tmp/x", ".", "", "x\0", "\ud800", 5)
        ),
        lambda job: {"outputs": dict.fromkeys(job["outputs"], "x")},
        lambda job: {"outputs": list(job["outputs"])},
        lambda job: {"outputs": {}},
        lambda job: {"outputs": {"../x": "x"}, "sizes": {"../x": 5}},
        lambda _: {"sizes": {}},
        lambda job: {"sizes": dict.fromkeys(job["sizes"], "5")},
        lambda job: {"sizes": dict.fromkeys(job["sizes"], -5)},
        lambda _: {"options": None},
        lambda _: {"parts": 0},
        lambda _: {"parts": "2"},
        lambda _: {"repeated": 5},
        lambda _: {"measured": 5},
        lambda _: {"budget": {"target_size": "5"}},
    ],
)
def test_what_others_write_as_a_job_leads_nowhere(model: Path, change: Any):
    begin(model)
    path = model.parent / "m.tc.partial" / "job.json"
    job = json.loads(path.read_text())
    path.write_text(json.dumps(job | change(job)))
    before = contents(model.parent)
    for run in (lambda: tensorcomp.compress(model, part="0/1"), lambda: tensorcomp.merge(model)):
        with pytest.raises(CheckpointError, match="is not what this version writes of a job"):
            run()
    assert contents(model.parent) == before


def begin(model: Path) -> None:
    """Begin the job of a model; compress nothing."""
    target = model.parent / "m.tc"
    begin_job(target, lambda: make_job(model, target, CompressOptions(), parts=2))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "5", '{"mark": [], %s', '{"refused": 5, %s', '{"seconds": NaN, %s']
)
def test_a_damaged_report_is_made_again(model: Path, text: str):
    compress_parts(model, 1)
    reports = model.parent / "m.tc.partial" / "reports"
    path = reports / f"{LARGEST}.tc.safetensors.json"
    rest = {key: value for key, value in json.loads(path.read_text()).items() if key not in text}
    path.write_text(text.replace("%s", json.dumps(rest)[1:]))
    with pytest.raises(VerificationError, match="lacks 1 of 6 shards"):
        tensorcomp.merge(model)
    assert tensorcomp.compress(model, part="0/1").reused == 5
    tensorcomp.merge(model)


def test_names_that_are_no_text_are_those_of_files(tmp_path: Path):
    (tmp_path / "m").mkdir()
    name = os.fsdecode(b"a\xff.safetensors")
    save_file({"w": np.ones((9, 9), np.float32)}, tmp_path / "m" / "a.safetensors")
    (tmp_path / "m" / "a.safetensors").rename(tmp_path / "m" / name)
    compress_parts(tmp_path / "m", 2)
    merged = tensorcomp.merge(tmp_path / "m")
    assert os.fsencode(next(iter(merged.files))).endswith(b"a\xff.safetensors")


def test_files_of_others_among_the_parts_stay(model: Path, caplog: pytest.LogCaptureFixture):
    compress_parts(model, 2)
    note = model.parent / "m.tc.partial" / "note.txt"
    note.write_text("of somebody")
    assert len(tensorcomp.merge(model).files) == 6
    assert [path.name for path in note.parent.iterdir()] == ["note.txt"]
    assert "stays where it is, all is merged" in caplog.text


def test_the_folder_may_be_the_current_one(model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(model)
    compress_parts(Path(), 2)
    assert tensorcomp.merge(Path()).path == model.parent / "m.tc"
    with pytest.raises(CheckpointError, match="expected a folder that has a name"):
        tensorcomp.compress(model, "/", part="0/2")


def test_a_worker_without_the_file_says_so(model: Path, monkeypatch: pytest.MonkeyPatch):
    tensorcomp.compress(model, part="1/2")
    (model / f"{LARGEST}.safetensors").unlink()
    with pytest.raises(CheckpointError, match=f"{LARGEST}.* has no such file; give a path that"):
        tensorcomp.compress(model, part="0/2")


@pytest.mark.slow
def test_parts_that_begin_at_once_and_are_killed(model: Path, tmp_path: Path):
    code = "import sys, tensorcomp; tensorcomp.compress(sys.argv[1], part=sys.argv[2], threads=1)"
    serial = tensorcomp.compress(model, tmp_path / "serial")

    def start(number: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", code, model, f"{number}/4"])

    running = [start(number) for number in range(4)]
    while not (tmp_path / "m.tc.partial" / "job.json").exists():
        time.sleep(0.01)
    for process in running[:2]:
        process.kill()
    for process in running:
        process.wait()
    for number in range(4):
        assert start(number).wait() == 0
    assert contents(tensorcomp.merge(model).path) == contents(serial.path)


def test_parts_read_the_job_and_not_all_headers(model: Path, monkeypatch: pytest.MonkeyPatch):
    tensorcomp.compress(model, part="0/6")
    opened: list[str] = []
    real = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda self, *rest, **more: (opened.append(self.name), real(self, *rest, **more))[1],
    )
    part = tensorcomp.compress(model, part="1/6")
    (shard,) = part.files
    sources = {name for name in opened if (model / name).exists()}
    assert sources == {shard.name}


def test_the_job_survives_its_text(model: Path, tmp_path: Path):
    target = tmp_path / "m.tc"
    made = make_job(model, target, CompressOptions(budget=Budget(min_snr=20)), parts=3)
    assert made.repeated == ["shared.weight"]
    begun = begin_job(target, lambda: made)
    assert begun == read_job(target) == begin_job(target, pytest.fail)
