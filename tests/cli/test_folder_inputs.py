"""Folders as they are found: every verb takes the same files for checkpoints, or says why not."""

import gzip
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import errors_of
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp.benchmark.run import bench
from tensorcomp.container.model import compressed_path, restored_name
from tensorcomp.pipeline.strategies import own_strategy
from tensorcomp.sparsity.measure import sparsity_report

torch = pytest.importorskip("torch")

VERBS = ("compress", "decompress", "inspect", "verify", "compare", "bench", "plan", "sparsity")
READING = ("compress", "inspect", "compare", "bench", "plan", "sparsity")


def weights(rows: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 64)).astype(np.float32)


class Trainer:
    """What no loader of plain tensors takes."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(2, 3)


CHECKPOINTS = {
    "last.ckpt": lambda path: torch.save({"state_dict": {"a": torch.ones(3)}}, path),
    "model.pth.tar": lambda path: torch.save({"a": torch.zeros(4, 5)}, path),
    "arrays.npz": lambda path: np.savez(path, a=weights(), b=np.arange(3)),
    "optimizer": lambda path: torch.save({"state": {0: torch.ones(2)}}, path),
    "MODEL.SAFETENSORS": lambda path: save_file({"x": weights(3)}, path),
    "0123abcd": lambda path: save_file({"y": weights(4)}, path),
    "nested/deep/model.v2": lambda path: torch.save([torch.ones(6)], path),
    "nested/old.bin": lambda path: torch.save(
        {"a": torch.ones(5)}, path, _use_new_zipfile_serialization=False
    ),
    "model.safetensors": lambda path: save_file({"w": weights(64, 1)}, path),
    "trainer.ckpt": lambda path: torch.save({"t": Trainer()}, path),
    "x/__0_0.distcp": lambda path: path.write_bytes(distcp()),
    "words.bin": lambda path: path.write_bytes(bytes(range(1, 256)) * 5000),
}
UNREAD = {
    "empty.pt": (Path.touch, "is empty"),
    "absent.bin": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid\n"),
        "git lfs pull",
    ),
    "packed.pt.gz": (lambda path: path.write_bytes(gzip.compress(b"x")), "a gzip archive"),
    "cut.npz": (lambda path: path.write_bytes(npz()[:-20]), "directory is missing"),
}
PLAIN = {
    "config.json": lambda path: path.write_text("{}"),
    "data.zip": lambda path: path.write_bytes(zipped()),
    "objects.npz": lambda path: np.savez(path, o=np.array([{}])),
    "scheduler.pt": lambda path: torch.save({"last_epoch": 3}, path),
    "notes": lambda path: path.write_bytes(b"\x02\0\0\0\0\0\0\0{ chance"),
}


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(9))
    return file.getvalue()


def distcp(tensors: int = 2) -> bytes:
    """Return what torch.distributed.checkpoint writes: archives of a tensor, one after another."""
    file = io.BytesIO()
    for _ in range(tensors):
        one = io.BytesIO()
        torch.save(torch.ones(64, 64), one)
        file.write(one.getvalue())
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "text")
    return file.getvalue()


def put(folder: Path, name: str, make) -> None:
    """Make a file; with a name of its own, since torch and NumPy add to or store names."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name("made.npz")
    make(made)
    made.rename(path)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    folder = tmp_path / "mixed"
    for name, make in (CHECKPOINTS | PLAIN).items():
        put(folder, name, make)
    for name, (make, _) in UNREAD.items():
        put(folder, name, make)
    return folder


def files_of(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_checkpoints_in_a_folder_are_known_by_content(mixed, tmp_path):
    done = tensorcomp.compress(mixed, effort="fast")
    assert {file.as_posix() for file in done.files} == CHECKPOINTS.keys()
    assert done.copied is not None
    assert done.copied.unread.keys() == UNREAD.keys()
    for name, (_, reason) in UNREAD.items():
        assert reason in done.copied.unread[name]
    assert not errors_of(done.path, mixed)
    back = tensorcomp.decompress(done.path, tmp_path / "back")
    assert files_of(back) == files_of(mixed)
    for name in files_of(mixed):
        assert (back / name).read_bytes() == (mixed / name).read_bytes()
    for other in (done.path, back):
        found = tensorcomp.compare(mixed, other)
        assert not found.problems
        assert all(row.errors.exact for row in found.tensors)


def test_every_verb_counts_the_tensors_of_the_same_files(mixed):
    alone = sum(len(tensorcomp.inspect(mixed / name).tensors) for name in CHECKPOINTS)
    assert len(tensorcomp.inspect(mixed).tensors) == alone
    assert len(tensorcomp.plan(mixed).tensors) == alone
    assert len(sparsity_report(mixed, every=True).rows) == alone
    assert bench(mixed, strategies=[own_strategy("affine(4, 64)")]).tensors == alone


def test_checkpoints_that_cannot_be_read_are_told_of(call, mixed):
    done = call("compress", mixed, "--json")
    assert done.status == 0
    assert done.json["copied"]["unread"].keys() == UNREAD.keys()
    for name, (_, reason) in UNREAD.items():
        (line,) = (line for line in done.stderr.splitlines() if f"mixed/{name}: " in line)
        assert line.startswith("tensorcomp: ")
        assert reason in line
    for verb in ("inspect", "sparsity"):
        assert "empty.pt" in call(verb, mixed).stderr
        assert call(verb, mixed, "-q").stderr == ""
    assert "empty.pt" in call("compare", mixed, mixed.with_name("mixed.tc")).stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_of_unreadable_checkpoints_alone(call, tmp_path, verb):
    folder = tmp_path / "run.tc"
    put(folder, "cut.npz", UNREAD["cut.npz"][0])
    again = [folder] if verb == "compare" else []
    line = call.refused("directory is missing", verb, folder, *again)
    assert "'cut.npz'" in line


def test_what_is_copied_is_counted_apart(call, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"w": np.zeros((256, 256), np.float32)}, folder / "model.safetensors")
    (folder / "data").mkdir()
    (folder / "data" / "words").write_bytes(bytes(3_000_000))
    (folder / "config.json").write_text("{}")
    size = (folder / "model.safetensors").stat().st_size
    done = tensorcomp.compress(folder)
    assert done.copied == (2, 3_000_002, {})
    small = done.output_bytes
    assert done.ratio == size / small
    assert done.summary.folder_ratio == (size + 3_000_002) / (small + 3_000_002)
    assert "; 2 other files, 3.00 MB, copied: ratio of the folder 1.087</p>" in done._repr_html_()
    text = "\n2 other files, 3.00 MB"
    assert str(done).endswith(f"{text}, copied: ratio of the folder 1.087")
    for verb, path in (("inspect", done.path), ("verify", done.path), ("decompress", done.path)):
        more = ["-o", tmp_path / "back"] if verb == "decompress" else []
        value = call(verb, path, "--json", *more).json
        assert value["copied"] == {"files": 2, "bytes": 3_000_002, "unread": {}}
        assert value["folder_ratio"] == done.summary.folder_ratio
        assert value["ratio"] == done.ratio
    assert f"not compressed{text}\n" in call.ok("inspect", folder).stdout
    to = ["-o", tmp_path / "b"]
    assert "; 2 other files copied\n" in call.ok("decompress", done.path, *to).stdout
    assert f"{text}, copied: ratio of the folder" in call.ok("plan", folder).stdout
    assert f"{text}, copied: ratio of the folder 1.087" in call.ok("inspect", done.path).stdout
    alone = call.ok("compress", folder / "model.safetensors", "-o", tmp_path / "m", "--json").json
    assert not {"copied", "folder_ratio"} & alone.keys()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Make a hub's cache of one model in two revisions."""
    root = tmp_path / "hub" / "models--o--n"
    for folder in ("blobs", "refs", "snapshots/old", "snapshots/new"):
        (root / folder).mkdir(parents=True)
    save_file({"w": weights()}, root / "blobs" / "aa")
    (root / "blobs" / "bb").write_text("{}")
    (root / "refs" / "main").write_text("new")
    for revision in ("old", "new"):
        snapshot = root / "snapshots" / revision
        (snapshot / "model.safetensors").symlink_to("../../blobs/aa")
        (snapshot / "config.json").symlink_to("../../blobs/bb")
        os.utime(snapshot, (1, 1) if revision == "old" else None)
    return root


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("inside", [False, True])
def test_a_hub_cache_is_refused_by_the_name_of_its_snapshot(call, cache, verb, inside):
    path = cache.parent if inside else cache
    again = [path] if verb == "compare" else []
    line = call.refused("is a hub's cache", verb, path, *again)
    assert line.endswith(f"such as {cache / 'snapshots' / 'new'}")


def test_a_snapshot_becomes_a_folder_of_ordinary_files(call, cache, tmp_path):
    for path, outs in ((cache / "snapshots" / "new", [""]), (cache / "snapshots", ["old", "new"])):
        out, back = tmp_path / f"out{len(outs)}", tmp_path / f"back{len(outs)}"
        done = tensorcomp.compress(path, out)
        assert len(done.files) == 1
        assert done.copied == (1, 2, {})
        call.ok("decompress", out, "-o", back)
        for folder in outs:
            for name, blob in (("model.safetensors", "aa"), ("config.json", "bb")):
                file = back / folder / name
                assert not file.is_symlink()
                assert file.read_bytes() == (cache / "blobs" / blob).read_bytes()
        assert not any(file.is_symlink() for file in out.rglob("*"))
        assert not errors_of(out, path)


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    folder = tmp_path / "linked"
    (folder / "step3").mkdir(parents=True)
    save_file({"w": weights(512)}, folder / "step3" / "model.safetensors")
    torch.save({"v": torch.ones(9)}, folder / "step3" / "state")
    (folder / "step3" / "words").write_bytes(bytes(50_000))
    (folder / "latest").symlink_to("step3")
    (folder / "best.safetensors").symlink_to("step3/model.safetensors")
    os.link(folder / "step3" / "model.safetensors", folder / "final.safetensors")
    os.link(folder / "step3" / "words", folder / "dictionary")
    return folder


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_of_several_names_is_stored_once(call, linked, tmp_path, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
    done = tensorcomp.compress(linked, effort="fast")
    assert len(done.files) == 2
    assert done.copied is not None
    assert done.copied[:2] == (1, 50_000)
    assert done.input_bytes < 150_000
    back = tensorcomp.decompress(done.path, tmp_path / "back")
    names = {file.relative_to(linked).as_posix() for file in [*linked.rglob("*")]} - {"latest"}
    names |= {f"latest/{name}" for name in ("model.safetensors", "state", "words")}
    assert files_of(back) == names - {"step3"}
    for name in files_of(back):
        assert (back / name).read_bytes() == (linked / name).read_bytes()
    for folder in (done.path, back):
        inodes = {file.stat().st_ino for file in folder.rglob("*") if file.is_file()}
        assert (len(inodes) == 3) == has_links
    for verb in ("inspect", "sparsity", "plan"):
        call.ok(verb, linked)
    assert len(tensorcomp.inspect(linked).tensors) == 2
    assert not errors_of(done.path, linked)
    assert not has_links or not tensorcomp.compare(linked, done.path).problems


@pytest.mark.parametrize("verb", READING)
def test_a_distributed_checkpoint_is_a_checkpoint(call, tmp_path, verb):
    (tmp_path / "saved").mkdir()
    for number in range(3):
        (tmp_path / "saved" / f"__{number}_0.distcp").write_bytes(distcp(number + 1))
    again = [tmp_path / "saved"] if verb == "compare" else []
    call.ok(verb, tmp_path / "saved", *again)
    assert len(tensorcomp.inspect(tmp_path / "saved").tensors) == 6


NAMES = ["model", "model.v2", "m.pt", "m.npz", "m.safetensors", "M.PT", "m.SAFETENSORS", "m."]
NAMES += ["m..", "m.pt.safetensors", ".safetensors", "m.tc", "m.tc.safetensors", "m..safetensors"]


@pytest.mark.parametrize("kind", ["safetensors", "torch", "npz", "gguf", "hdf5", "bytes"])
def test_names_lead_back_and_are_each_its_own(kind):
    packed = [compressed_path(Path(name), kind).name for name in NAMES]
    assert all(name.endswith(".tc.safetensors") for name in packed)
    assert len(set(packed)) == len(NAMES)
    assert [restored_name(name, kind) for name in packed] == NAMES


def test_usual_names_stay(tmp_path):
    for name, kind, packed in (
        ("model.safetensors", "safetensors", "model.tc.safetensors"),
        ("model.pt", "torch", "model.pt.tc.safetensors"),
        ("arrays.npz", "npz", "arrays.npz.tc.safetensors"),
        ("blob", "safetensors", "blob..tc.safetensors"),
    ):
        assert compressed_path(tmp_path / name, kind) == tmp_path / packed


def test_two_files_of_one_name_are_refused(call, tmp_path):
    folder = tmp_path / "clash"
    folder.mkdir()
    torch.save({"a": torch.ones(3)}, folder / "model.bin")
    save_file({"a": weights()}, folder / "model.bin.safetensors")
    words = "both 'model.bin' and 'model.bin.safetensors' would become 'model.bin.tc.safetensors'"
    call.refused(words, "compress", folder)
    (folder / "model.bin").unlink()
    tensorcomp.compress(folder / "model.bin.safetensors")
    call.refused("has compressed it already", "compress", folder)
    call.refused("would become 'model.bin.safetensors'", "decompress", folder, "-o", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_names_of_another_kind_are_refused(call, tmp_path):
    torch.save({"a": torch.ones(3)}, tmp_path / "m.pt")
    for out in ("x.pt", "x.npz", "X.PTH"):
        call.refused(
            "a name for a safetensors", "compress", tmp_path / "m.pt", "-o", tmp_path / out
        )
    call.ok("compress", tmp_path / "m.pt")
    packed = tmp_path / "m.pt.tc.safetensors"
    for out in ("x.npz", "x.safetensors"):
        call.refused("a name for a torch file", "decompress", packed, "-o", tmp_path / out)
    for out in ("x", "x.ckpt", "x.bin", "y.pt"):
        call.ok("decompress", packed, "-o", tmp_path / out)
        assert torch.load(tmp_path / out)["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(("out", "back"), [("out.foo", "out.foo.pt"), ("out", "out.pt")])
def test_what_compress_was_told_to_write_decompress_takes(call, tmp_path, out, back):
    torch.save({"a": torch.ones(3)}, tmp_path / "m.pt")
    call.ok("compress", tmp_path / "m.pt", "-o", tmp_path / out)
    call.ok("decompress", tmp_path / out)
    assert torch.load(tmp_path / back)["a"].tolist() == [1, 1, 1]
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "m.pt").rename(folder / "m.pt")
    call.ok("compress", folder, "-o", tmp_path / "packed")
    call.refused("expected a name that ends in .tc", "decompress", tmp_path / "packed")


def test_tied_names_are_counted_alike(call, tmp_path):
    weight = torch.from_numpy(weights())
    torch.save({"a": weight, "b": weight.detach()}, tmp_path / "m.pt")
    assert "\n1 tensor and 1 tied name, " in call.ok("compress", tmp_path / "m.pt").stdout
    packed = tmp_path / "m.pt.tc.safetensors"
    assert ": 1 tensor and 1 tied name, " in call.ok("inspect", packed).stdout
    assert ": 1 tensor checked" in call.ok("verify", packed).stdout


@pytest.mark.parametrize("ratio", ["1e9", "1000"])
def test_the_possible_ratio_is_that_of_the_input(call, tmp_path, ratio):
    save_file({"w": weights()}, tmp_path / "m.safetensors")
    line = call.refused(
        "a ratio of", "compress", tmp_path / "m.safetensors", "--target-ratio", ratio
    )
    least, found = line.partition("takes about ")[2].split(" bytes, a ratio of ")
    size = (tmp_path / "m.safetensors").stat().st_size
    wanted = size / int(least.replace(",", ""))
    assert wanted - 0.01 <= float(found.partition(";")[0]) <= wanted


def test_an_index_that_names_a_missing_shard_is_refused_by_every_verb(call, tmp_path):
    save_file({"w": weights()}, tmp_path / "m-00001-of-00002.safetensors")
    shards = {"w": "m-00001-of-00002.safetensors", "v": "m-00002-of-00002.safetensors"}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    for verb in READING:
        again = [tmp_path] if verb == "compare" else []
        call.refused("1 of 2 shards are missing", verb, tmp_path, *again)


def test_names_are_kept_on_demand(call, linked, tmp_path):
    out, back = tmp_path / "kept", tmp_path / "back"
    call.ok("compress", linked, "-o", out, "--keep-names")
    names = {file for file in files_of(out) if file.endswith(".safetensors")}
    assert {file for file in names if not file.endswith("state..tc.safetensors")} == {
        "best.safetensors",
        "final.safetensors",
        "latest/model.safetensors",
        "step3/model.safetensors",
    }
    call.ok("decompress", out, "-o", back)
    for name in ("final.safetensors", "step3/model.safetensors"):
        assert (back / name).read_bytes() == (linked / name).read_bytes()
    refused = call("compress", linked, "--keep-names", "--replace").line
    assert "expected --keep-names for a folder that is written elsewhere, got --replace" in refused
