import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from tensorcomp.checkpoints.folder import copy_others, scan_folder
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.errors import CheckpointError

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def write_index(folder: Path, weight_map: Any, name: str = INDEX) -> None:
    (folder / name).write_text(json.dumps({"weight_map": weight_map}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "model"
    (root / "sub" / "deeper").mkdir(parents=True)
    save_file({"a": np.ones(3), "b": np.ones(2)}, root / FIRST)
    save_file({"c": np.zeros(4)}, root / SECOND)
    write_index(root, {"a": FIRST, "b": FIRST, "c": SECOND})
    (root / "config.json").write_text("{}")
    (root / "sub" / "deeper" / "tokenizer.json").write_text("[]")
    return root


def test_shards_index_and_other_files(folder, tmp_path):
    weights, others, _, _ = scan_folder(folder)
    assert weights == (Path(FIRST), Path(SECOND))
    assert others == (Path("config.json"), Path(INDEX), Path("sub/deeper/tokenizer.json"))
    for file in weights:
        with open_checkpoint(folder / file) as checkpoint:
            assert checkpoint.tensors
    copy_others(folder, others, tmp_path / "out")
    for file in others:
        assert (tmp_path / "out" / file).read_bytes() == (folder / file).read_bytes()


def test_folders_without_an_index(tmp_path):
    save_file({"a": np.ones(3)}, tmp_path / "model.safetensors")
    assert scan_folder(tmp_path)[0] == (Path("model.safetensors"),)
    save_file({"a": np.ones(3)}, tmp_path / "adapter.safetensors")
    (tmp_path / "unet").mkdir()
    save_file({"a": np.ones(3)}, tmp_path / "unet" / "x.safetensors")
    assert len(scan_folder(str(tmp_path))[0]) == 3


def test_whole_model_in_another_layout_beside_the_shards(folder):
    save_file({"layers.0": np.ones(3)}, folder / "consolidated.safetensors")
    assert len(scan_folder(folder)[0]) == 3


def test_torch_shards_and_training_state(tmp_path):
    torch.save({"a": torch.ones(3)}, tmp_path / "pytorch_model-00001-of-00001.bin")
    write_index(tmp_path, {"a": "pytorch_model-00001-of-00001.bin"}, "pytorch_model.bin.index.json")
    torch.save({"state": {0: {"exp_avg": torch.ones(3)}}}, tmp_path / "optimizer.pt")
    torch.save({"args": print}, tmp_path / "training_args.bin")
    torch.save({"last_epoch": 3}, tmp_path / "scheduler.pt")
    (tmp_path / "words.bin").write_bytes(b"words")
    weights, others, _, _ = scan_folder(tmp_path)
    assert [str(file) for file in weights] == [
        "optimizer.pt",
        "pytorch_model-00001-of-00001.bin",
    ]
    assert len(others) == 4


def test_links_of_a_download_cache(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save_file({"a": np.ones(3)}, blobs / "0123")
    (blobs / "4567").write_text("{}")
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
    (snapshot / "config.json").symlink_to("../../blobs/4567")
    weights, others, _, _ = scan_folder(snapshot)
    assert weights == (Path("model.safetensors"),)
    copy_others(snapshot, others, tmp_path / "out")
    assert not (tmp_path / "out" / "config.json").is_symlink()
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../blobs/absent")
    with pytest.raises(CheckpointError, match="link to a file that is not there"):
        scan_folder(snapshot)


def test_linked_folders_are_followed_but_not_in_circles(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "extra.txt").touch()
    (folder / "linked").symlink_to(outside)
    assert Path("linked/extra.txt") in scan_folder(folder)[1]
    (outside / "back").symlink_to(folder)
    with pytest.raises(CheckpointError, match="a link to a folder that holds it"):
        scan_folder(folder)


def test_copies_never_follow_a_link_out_of_the_output(folder, tmp_path):
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    out.mkdir()
    (out / "config.json").symlink_to(victim)
    copy_others(folder, scan_folder(folder)[1], out)
    assert victim.read_text() == "precious"
    assert (out / "config.json").read_text() == "{}"


def test_version_control_and_download_state_are_left_out(folder):
    for name in (".git", ".cache"):
        (folder / name).mkdir()
        save_file({"a": np.ones(3)}, folder / name / "x.safetensors")
    (folder / ".gitattributes").touch()
    weights, others, _, _ = scan_folder(folder)
    assert weights == (Path(FIRST), Path(SECOND))
    assert Path(".gitattributes") in others
    assert len(others) == 4


def test_index_without_total_size_or_with_metadata(folder):
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(index | {"metadata": {"total_size": "wrong"}}))
    assert len(scan_folder(folder)[0]) == 2


def put(name: str, **tensors: int) -> Callable[[Path], None]:
    """Return what writes a file of tensors of so many elements each."""
    return lambda root: save_file({key: np.ones(n) for key, n in tensors.items()}, root / name)


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(content)


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


THIRD = "model-00003-of-00003.safetensors"
MOVED = {"a": SECOND, "b": FIRST, "c": SECOND}
DAMAGES: dict[str, tuple[list[Callable[[Path], object]], str]] = {
    "a shard removed": ([remove(SECOND)], rf"{INDEX}: 1 of 2 shards are missing: '{SECOND}'"),
    "a shard and the index removed": (
        [remove(INDEX), remove(SECOND)],
        rf"1 of 2 shards are missing: '{SECOND}'",
    ),
    "a tensor twice": (
        [put(SECOND, c=1, a=3)],
        rf"{INDEX}: tensor 'a' stands in both '{FIRST}' and '{SECOND}'",
    ),
    "a tensor twice, no index": (
        [remove(INDEX), put(SECOND, c=1, a=3)],
        rf"tensor 'a' stands in both '{FIRST}' and '{SECOND}'",
    ),
    "tensors lost": ([put(FIRST, a=3)], r"1 tensors are not in the shards that it names: 'b'"),
    "a tensor moved": (
        [lambda root: write_index(root, MOVED)],
        rf"1 tensors are not .*'a' \(the first should be in '{SECOND}'\)",
    ),
    "a tensor added": (
        [put(SECOND, c=1, new=3)],
        r"is stale: it lacks 1 tensors that the shards hold: 'new'",
    ),
    "a shard added": ([put(THIRD, z=1)], rf"is stale: it does not name '{THIRD}'"),
    "a whole model added": (
        [put("model.safetensors", z=1)],
        r"is stale: it does not name 'model.safetensors'",
    ),
    "a shard cut": (
        [lambda root: (root / SECOND).write_bytes((root / SECOND).read_bytes()[:-1])],
        rf"{SECOND}: cut short",
    ),
    "a pointer for a shard": (
        [write(SECOND, b"version https://git-lfs.github.com/spec/v1\n")],
        rf"{SECOND}: is a git-lfs pointer",
    ),
    "an index cut": ([write(INDEX, b'{"weight_map": {')], rf"{INDEX}: is not valid JSON"),
    "a deep index": ([write(INDEX, b"[" * 100_000)], rf"{INDEX}: is not valid JSON"),
    "an index not in UTF-8": ([write(INDEX, b"\xff\xfe")], rf"{INDEX}: is not valid JSON"),
    "an index of nothing": ([write(INDEX, b"[]")], rf'{INDEX}: has no "weight_map"'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders(damage, folder):
    steps, message = DAMAGES[damage]
    for step in steps:
        step(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        scan_folder(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "shard", ["../x", "/etc/passwd", "a\0b", "sub/x", "..", ".", "", "C:x", "a\\b", 5, None, ["x"]]
)
def test_hostile_shard_names(shard, folder):
    write_index(folder, {"a": shard})
    with pytest.raises(CheckpointError, match="not the name of a file beside it"):
        scan_folder(folder)


def test_what_is_no_folder_of_weights(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "absent", Path("a\0b")):
        with pytest.raises(CheckpointError):
            scan_folder(path)
    with pytest.raises(CheckpointError, match=r"holds no checkpoint"):
        scan_folder(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        scan_folder(tmp_path)
