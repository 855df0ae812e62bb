import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import digest, errors_of, small_model, write_safetensors

import tensorcomp


def files_of(folder: Path) -> dict[str, str]:
    """Return the digest of every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a model in two shards with what stands beside it."""
    root = tmp_path / "model"
    (root / "nested" / "deep").mkdir(parents=True)
    model = small_model()
    names = list(model)
    shards = {
        "model-00001-of-00002.safetensors": names[:4],
        "model-00002-of-00002.safetensors": names[4:],
    }
    for file, held in shards.items():
        write_safetensors(root / file, {name: model[name] for name in held}, {"format": "pt"})
    index = {
        "metadata": {"total_size": sum(array.nbytes for array in model.values())},
        "weight_map": {name: file for file, held in shards.items() for name in held},
    }
    (root / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    (root / "config.json").write_text('{"hidden": 64}\n')
    (root / "empty").write_bytes(b"")
    (root / "nested" / "tokenizer.model").write_bytes(bytes(range(256)))
    write_safetensors(root / "nested" / "deep" / "adapter.safetensors", small_model(1))
    return root


def test_a_folder_comes_back_in_every_byte(folder, tmp_path):
    before = files_of(folder)
    done = tensorcomp.compress(folder)
    assert done.path == folder.with_name("model.tc")
    assert len(done.files) == 3
    inside = files_of(done.path)
    assert inside.pop("model.safetensors.index.tc.json")
    assert len(inside) == len(before)
    assert inside["config.json"] == before["config.json"]
    assert inside["nested/tokenizer.model"] == before["nested/tokenizer.model"]
    assert "model-00001-of-00002.tc.safetensors" in inside
    assert sum(path.stat().st_size for path in done.path.rglob("*") if path.is_file()) < sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file()
    )
    assert not errors_of(done.path, folder)
    restored = tensorcomp.decompress(done.path, tmp_path / "again")
    assert files_of(restored) == before
    assert files_of(folder) == before


def test_default_names_lead_back(folder):
    before = files_of(folder)
    done = tensorcomp.compress(folder)
    folder.rename(folder.with_name("moved"))
    assert tensorcomp.decompress(done.path) == folder
    assert files_of(folder) == before


def test_an_existing_folder_is_replaced_only_on_demand(folder):
    done = tensorcomp.compress(folder)
    whole = files_of(done.path)
    (done.path / "config.json").write_text("old")
    before = files_of(done.path)
    with pytest.raises(tensorcomp.errors.CheckpointError, match="exists already"):
        tensorcomp.compress(folder)
    assert files_of(done.path) == before
    tensorcomp.compress(folder, force=True)
    assert files_of(done.path) == whole


@pytest.mark.parametrize("stray", ["stray", "nested/stray.safetensors", ".hidden", "link"])
def test_a_folder_that_holds_anything_else_is_never_replaced(folder, tmp_path, stray):
    packed = tensorcomp.compress(folder).path
    restored = tensorcomp.decompress(packed, tmp_path / "again")
    for out in (packed, restored):
        if stray == "link":
            (out / stray).symlink_to(tmp_path)
        else:
            (out / stray).write_text("precious")
    before = {out: files_of(out) for out in (packed, restored)}
    with pytest.raises(tensorcomp.errors.CheckpointError, match=f"holds '?{stray}.*would be lost"):
        tensorcomp.compress(folder, packed, force=True)
    source = tensorcomp.compress(folder, tmp_path / "other").path
    with pytest.raises(tensorcomp.errors.CheckpointError, match=f"holds '?{stray}.*would be lost"):
        tensorcomp.decompress(source, restored, force=True)
    assert before == {out: files_of(out) for out in (packed, restored)}
    assert not list(tmp_path.glob(".*"))


def test_what_appears_in_a_folder_meanwhile_is_kept(folder, tmp_path):
    out = tensorcomp.compress(folder).path

    class Adds(tensorcomp.Progress):
        def advance(self, name: str, nbytes: int) -> None:
            (out / "late").write_text("precious")

    with pytest.raises(tensorcomp.errors.CheckpointError, match=r"holds '?late"):
        tensorcomp.compress(folder, force=True, progress=Adds())
    assert (out / "late").read_text() == "precious"
    assert not list(tmp_path.glob(".*"))


def test_no_output_holds_its_input_or_lies_in_it(folder, tmp_path):
    before = files_of(tmp_path)
    for out in (tmp_path, folder, folder / "inside"):
        with pytest.raises(tensorcomp.errors.CheckpointError, match="the input folder"):
            tensorcomp.compress(folder, out, force=True)
    assert files_of(tmp_path) == before
    packed = tensorcomp.compress(folder).path
    before = files_of(tmp_path)
    for out in (tmp_path, packed, packed / "inside"):
        with pytest.raises(tensorcomp.errors.CheckpointError, match="the input folder"):
            tensorcomp.decompress(packed, out, force=True)
    assert files_of(tmp_path) == before


def test_two_runs_into_one_folder_do_not_disturb_each_other(folder, tmp_path):
    errors = []

    class Second(tensorcomp.Progress):
        def advance(self, name: str, nbytes: int) -> None:
            if not errors:
                with pytest.raises(tensorcomp.errors.CheckpointError) as caught:
                    tensorcomp.compress(folder, force=True)
                errors.append(str(caught.value))

    done = tensorcomp.compress(folder, force=True, progress=Second())
    assert "another run is writing it" in errors[0]
    assert not errors_of(done.path, folder)
    assert not list(tmp_path.glob(".*"))


def test_a_link_in_place_of_the_temporary_folder_is_not_followed(folder, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("x")
    (tmp_path / ".model.tc.tensorcomp-part").symlink_to(victim)
    done = tensorcomp.compress(folder)
    assert not done.path.is_symlink()
    assert files_of(victim).keys() == {"precious"}


class _Stop(tensorcomp.Progress):
    def advance(self, name: str, nbytes: int) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_run_leaves_the_folder_as_it_was(folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("old")
    before = files_of(out)
    with pytest.raises(KeyboardInterrupt):
        tensorcomp.compress(folder, out, force=True, progress=_Stop())
    assert files_of(out) == before
    assert not list(tmp_path.glob(".*"))


def test_a_killed_run_is_cleaned_up_by_the_next(folder, tmp_path):
    code = """
import os, sys, tensorcomp
class Killed(tensorcomp.Progress):
    def advance(self, name, nbytes):
        os._exit(9)
tensorcomp.compress(sys.argv[1], progress=Killed())
"""
    subprocess.run([sys.executable, "-c", code, folder], check=False)
    assert not (tmp_path / "model.tc").exists()
    assert list(tmp_path.glob(".*tensorcomp-part"))
    done = tensorcomp.compress(folder)
    assert not list(tmp_path.glob(".*"))
    assert not errors_of(done.path, folder)


@contextmanager
def _refused(wanted: str) -> Iterator[None]:
    with pytest.raises(tensorcomp.errors.CheckpointError, match=wanted):
        yield


def test_outputs_that_cannot_be_are_refused(folder, tmp_path):
    with _refused("lies in the input folder"):
        tensorcomp.compress(folder, folder / "out")
    with _refused("lies in the input folder"):
        tensorcomp.compress(folder, folder, force=True)
    (tmp_path / "file").write_text("old")
    with _refused("exists already"):
        tensorcomp.compress(folder, tmp_path / "file", force=True)
    (tmp_path / "bare").mkdir()
    with _refused("holds no"):
        tensorcomp.compress(tmp_path / "bare")
    with _refused("holds no"):
        tensorcomp.decompress(tmp_path / "bare", tmp_path / "out")


def test_damage_in_one_file_is_reported_with_its_name(folder):
    done = tensorcomp.compress(folder)
    path = done.path / "model-00001-of-00002.tc.safetensors"
    data = bytearray(path.read_bytes())
    data[-60] ^= 1
    path.write_bytes(data)
    failed = [check for check in tensorcomp.verify(done.path) if check.error]
    assert len(failed) == 1
    assert failed[0].file == path
    with pytest.raises(tensorcomp.errors.FormatError, match=path.name):
        tensorcomp.decompress(done.path, folder.with_name("again"))
    assert not folder.with_name("again").exists()


def test_a_difference_from_the_original_is_found(folder):
    done = tensorcomp.compress(folder)
    other = small_model()
    other["layer.0.bias"] = np.ones(96, np.float32)
    names = list(other)[4:]
    write_safetensors(
        folder / "model-00002-of-00002.safetensors",
        {name: other[name] for name in names},
        {"format": "pt"},
    )
    failed = [check for check in tensorcomp.verify(done.path, folder) if check.error]
    assert [check.name for check in failed] == ["layer.0.bias"]
    assert "differs from the original" in str(failed[0].error)
