"""Folders as hosts look for files in them: an index by the variant ``tc``, or the names kept."""

import json
from pathlib import Path

import pytest
from checkpoint_files import digest, errors_of, small_model, write_safetensors

import tensorcomp
from tensorcomp.errors import CheckpointError, PlanError

SHARDS = ("model-00001-of-00002", "model-00002-of-00002")
INDEX, FOR_HOSTS = "model.safetensors.index.json", "model.safetensors.index.tc.json"


def files_of(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest(path) for path in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a model in two shards, one of a component in a folder of its own, and an odd name."""
    root = tmp_path / "model"
    (root / "unet").mkdir(parents=True)
    model, weight_map = small_model(), {}
    names = list(model)
    for shard, held in zip(SHARDS, (names[:4], names[4:]), strict=True):
        write_safetensors(root / f"{shard}.safetensors", {n: model[n] for n in held})
        weight_map |= dict.fromkeys(held, f"{shard}.safetensors")
    write_index(root / INDEX, weight_map, {"total_size": 7, "é": "ü"})
    write_safetensors(root / "unet" / "part.safetensors", {"w": model[names[0]]})
    write_safetensors(root / "state.bin", {"w": model[names[1]]})
    write_index(root / "unet" / "x.safetensors.index.fp16.json", {"w": "part.safetensors"}, {})
    return root


def write_index(path: Path, weight_map: dict[str, str], metadata: dict[str, object]) -> None:
    path.write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))


def test_the_index_for_hosts_names_the_compressed_shards(folder):
    packed = tensorcomp.compress(folder).path
    index = json.loads((packed / FOR_HOSTS).read_text("utf-8"))
    original = json.loads((folder / INDEX).read_text("utf-8"))
    assert index["metadata"] == original["metadata"]
    assert list(index["weight_map"]) == list(original["weight_map"])
    for name, file in index["weight_map"].items():
        assert name in tensorcomp.load_file(packed / file)
    variant = json.loads((packed / "unet/x.safetensors.index.fp16.tc.json").read_text("utf-8"))
    assert variant["weight_map"] == {"w": "part.tc.safetensors"}
    assert (packed / INDEX).read_bytes() == (folder / INDEX).read_bytes()


@pytest.mark.parametrize("keep_names", [False, True])
def test_every_byte_comes_back_and_no_index_more(folder, tmp_path, keep_names):
    before = files_of(folder)
    packed = tensorcomp.compress(folder, keep_names=keep_names).path
    assert not errors_of(packed)
    assert not errors_of(packed, folder)
    restored = tensorcomp.decompress(packed, tmp_path / "restored")
    assert files_of(restored) == before
    assert files_of(tensorcomp.decompress(packed, restored, force=True)) == before


@pytest.mark.parametrize("keep_names", [False, True])
def test_what_is_told_of_a_folder_leaves_out_the_index(folder, keep_names):
    done = tensorcomp.compress(folder, keep_names=keep_names)
    inspected = tensorcomp.inspect(done.path)
    assert done.summary.to_dict() == inspected.to_dict()
    assert inspected.copied.files == 2
    assert tensorcomp.compare(folder, done.path).exact
    again = tensorcomp.compress(folder, keep_names=keep_names, force=True)
    assert files_of(again.path) == files_of(done.path)


def test_names_are_kept(folder):
    packed = tensorcomp.compress(folder, keep_names=True).path
    kept = files_of(packed)
    # A host would take a file of that name for one of another kind.
    assert kept.keys() ^ files_of(folder).keys() == {"state.bin", "state.bin..tc.safetensors"}
    assert tensorcomp.load_file(packed / f"{SHARDS[0]}.safetensors").keys() <= small_model().keys()
    with pytest.raises(CheckpointError, match="compressed it already; decompress it first"):
        tensorcomp.compress(packed)
    for replace in (tensorcomp.compress, tensorcomp.decompress):
        with pytest.raises(CheckpointError, match=r"already; decompress|would replace the input"):
            replace(packed, replace=True)
    assert files_of(packed) == kept


def test_names_are_kept_in_another_folder_only(folder):
    before = files_of(folder)
    for path, options in ((folder, {"replace": True}), (folder / "unet/part.safetensors", {})):
        with pytest.raises(PlanError, match="expected keep_names=True for a folder"):
            tensorcomp.compress(path, keep_names=True, **options)
    with pytest.raises(CheckpointError, match="lies in the input folder"):
        tensorcomp.compress(folder, folder, keep_names=True)
    assert files_of(folder) == before


def test_a_name_that_would_lead_elsewhere_is_not_kept(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    write_safetensors(folder / "a.tc.safetensors", small_model())
    write_safetensors(folder / "b", small_model(1))
    before = files_of(folder)
    packed = tensorcomp.compress(folder, keep_names=True).path
    assert files_of(tensorcomp.decompress(packed, tmp_path / "restored")) == before


def test_in_place_the_index_comes_and_goes(folder):
    before = files_of(folder)
    tensorcomp.compress(folder, replace=True)
    assert set(files_of(folder)) > {FOR_HOSTS, INDEX, f"{SHARDS[0]}.tc.safetensors"}
    tensorcomp.compress(folder, replace=True)  # nothing is left to do
    assert not errors_of(folder)
    tensorcomp.decompress(folder, replace=True)
    assert files_of(folder) == before


def test_in_place_a_part_that_was_restored_alone_is_no_missing_shard(folder):
    before = files_of(folder)
    tensorcomp.compress(folder, replace=True)
    tensorcomp.decompress(folder / f"{SHARDS[0]}.tc.safetensors", replace=True)
    tensorcomp.compress(folder, replace=True)
    tensorcomp.decompress(folder / f"{SHARDS[0]}.tc.safetensors", replace=True)
    tensorcomp.decompress(folder, replace=True)
    assert files_of(folder) == before


@pytest.mark.parametrize("keep_names", [False, True])
@pytest.mark.parametrize("verb", [tensorcomp.decompress, tensorcomp.verify, tensorcomp.inspect])
def test_a_missing_shard_is_named_and_nothing_written(folder, tmp_path, keep_names, verb):
    packed = tensorcomp.compress(folder, tmp_path / "p.tc", keep_names=keep_names).path
    name = f"{SHARDS[1]}{'' if keep_names else '.tc'}.safetensors"
    (packed / name).unlink()
    before = files_of(tmp_path)
    with pytest.raises(CheckpointError, match=rf"1 of 2 shards are missing: '{name}'"):
        verb(packed)
    assert files_of(tmp_path) == before


def test_an_index_of_that_name_that_was_there_stays(folder, tmp_path):
    write_index(folder / FOR_HOSTS, {"w": "w.safetensors"}, {})
    write_safetensors(folder / "w.safetensors", {"w": small_model()["embed.weight"]})
    before = files_of(folder)
    packed = tensorcomp.compress(folder).path
    assert (packed / FOR_HOSTS).read_bytes() == (folder / FOR_HOSTS).read_bytes()
    assert files_of(tensorcomp.decompress(packed, tmp_path / "restored")) == before
