"""Files that take the place of their sources: nothing is lost, whatever happens meanwhile."""

import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from checkpoint_files import digest, errors_of, small_model, write_safetensors

import tensorcomp
from tensorcomp.api import replace as replacing
from tensorcomp.errors import CheckpointError, PlanError, TensorcompError
from tensorcomp_cli.main import main

SHARDS = [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]


def tree(folder):
    """Return the digest of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest(path) for path in files}


def names(folder):
    """Return the names in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path):
    """Return a model of three shards with an index, a nested shard, and other files."""
    root = tmp_path / "model"
    names = list(small_model())
    model = {
        f"{number}.{name}": value
        for number in range(3)
        for name, value in small_model(number).items()
    }
    held = {shard: [f"{number}.{name}" for name in names] for number, shard in enumerate(SHARDS)}
    for shard, keys in held.items():
        write_safetensors(root / shard, {key: model[key] for key in keys}, {"format": "pt"})
    weight_map = {key: shard for shard, keys in held.items() for key in keys}
    (root / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    write_safetensors(root / "nested" / "adapter.safetensors", small_model(9))
    (root / "config.json").write_text("{}")
    return root


@pytest.fixture
def file(tmp_path):
    return write_safetensors(tmp_path / "one" / "model.safetensors", small_model())


def packed(path):
    return path.with_name(path.name.removesuffix(".safetensors") + ".tc.safetensors")


def test_a_file_is_replaced_and_comes_back_in_every_byte(file):
    file.chmod(0o600)
    before, size = tree(file.parent), file.stat().st_size
    result = tensorcomp.compress(file, replace=True)
    assert list(tree(file.parent)) == [packed(file).name]
    assert result.path == packed(file)
    assert result.input_bytes == size
    assert result.output_bytes == packed(file).stat().st_size
    assert packed(file).stat().st_mode & 0o777 == 0o600
    assert tensorcomp.decompress(packed(file), replace=True) == file
    assert tree(file.parent) == before


def test_a_folder_is_replaced_and_comes_back_in_every_byte(folder):
    before = tree(folder)
    result = tensorcomp.compress(folder, replace=True)
    now = tree(folder)
    assert [name for name in now if name.endswith(".safetensors")] == sorted(
        packed(folder / name).relative_to(folder).as_posix()
        for name in before
        if name.endswith(".safetensors")
    )
    assert now["model.safetensors.index.json"] == before["model.safetensors.index.json"]
    assert len(result.files) == 4
    again = tensorcomp.compress(folder, replace=True)  # nothing is left to do
    assert again.summary == result.summary
    assert tree(folder) == now
    assert tensorcomp.decompress(folder, replace=True) == folder
    assert tree(folder) == before


def test_other_formats_are_replaced_too(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(64, 64), "step": 3}, tmp_path / "a.pt")
    np.savez(tmp_path / "b.npz", w=np.ones((64, 64), np.float32))
    for name in ("a.pt", "b.npz"):
        compressed = tensorcomp.compress(tmp_path / name, replace=True).path
        assert not (tmp_path / name).exists()
        assert tensorcomp.decompress(compressed, replace=True) == tmp_path / name
        assert not compressed.exists()
    assert torch.load(tmp_path / "a.pt")["step"] == 3


LOSSY = [
    {"budget": tensorcomp.Budget(min_snr=30)},
    {"budget": tensorcomp.Budget(bits_per_weight=4)},
    {"profile": "transformer"},
    {"prune": tensorcomp.Pruning("magnitude", sparsity=0.5)},
    {"codecs": "mlp=uniform(0.01)"},
]


@pytest.mark.parametrize("options", LOSSY, ids=lambda options: next(iter(options)))
def test_nothing_is_lost_unsaid(file, options):
    before = tree(file.parent)
    with pytest.raises(PlanError, match="replace='lossy' allows it"):
        tensorcomp.compress(file, replace=True, **options)
    assert tree(file.parent) == before
    original = shutil.copy(file, file.parent.parent)
    done = tensorcomp.compress(file, replace="lossy", **options)
    assert list(tree(file.parent)) == [packed(file).name]
    assert done.summary.lossy
    assert not errors_of(done.path, original)


def test_what_a_lossy_file_decodes_to_is_restored(file):
    tensorcomp.compress(file, replace="lossy", budget=tensorcomp.Budget(min_snr=30))
    wanted = tensorcomp.decompress(packed(file), file.with_name("wanted"))
    with pytest.raises(PlanError, match="replace='lossy' allows it"):
        tensorcomp.decompress(packed(file), replace=True)
    tensorcomp.decompress(packed(file), replace="lossy")
    assert digest(file) == digest(wanted)
    assert not packed(file).exists()


@pytest.mark.parametrize("options", [LOSSY[1], LOSSY[3], {"plan": tensorcomp.plan}])
def test_what_is_spread_over_a_folder_is_refused(folder, options):
    before = tree(folder)
    with pytest.raises(PlanError, match="file by file"):
        tensorcomp.compress(folder, replace="lossy", **options)
    assert tree(folder) == before


@pytest.mark.parametrize("link", ["to a blob", "beside it"])
@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_links_are_refused_before_anything_is_written(folder, tmp_path, make, link):
    if link == "to a blob":
        (folder / SHARDS[2]).rename(tmp_path / "blob")
        make(tmp_path / "blob", folder / SHARDS[2])
    else:
        make(folder / SHARDS[2], folder / "zzz")
    before = tree(folder)
    with pytest.raises(CheckpointError, match="frees nothing"):
        tensorcomp.compress(folder, replace=True)
    assert tree(folder) == before


def test_no_output_elsewhere(file, tmp_path):
    for verb in (tensorcomp.compress, tensorcomp.decompress):
        with pytest.raises(CheckpointError, match="beside replace=True"):
            verb(file, tmp_path / "out", replace=True)


class Meddles(tensorcomp.Progress):
    """Do something to the files when the first tensor is done."""

    def __init__(self, meddle):
        self.meddle = meddle

    def advance(self, name, nbytes):
        if self.meddle is not None:
            self.meddle()
        self.meddle = None


@pytest.mark.parametrize("back", [False, True], ids=["compress", "decompress"])
def test_a_source_that_changes_meanwhile_is_kept(file, back):
    source = tensorcomp.compress(file, replace=True).path if back else file
    verb = tensorcomp.decompress if back else tensorcomp.compress
    with pytest.raises(CheckpointError, match="changed while it was read"):
        verb(source, replace=True, progress=Meddles(lambda: os.utime(source, (1, 1))))
    assert names(file.parent) == [source.name]


def test_what_a_killed_run_had_finished_is_not_encoded_again(folder, monkeypatch):
    before = tree(folder)
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    tensorcomp.compress(folder, replace=True)
    done = tree(folder)
    for shard in SHARDS[1:]:  # the first is gone, the second was about to be deleted
        shutil.copy(copy / shard, folder)
    packed(folder / SHARDS[2]).unlink()
    left = folder / f".{packed(folder / SHARDS[2]).name}.tensorcomp-part"
    left.write_bytes(b"half")
    written = []
    create = replacing.Replacement.create
    monkeypatch.setattr(
        replacing.Replacement, "create", lambda self: written.append(self.source) or create(self)
    )
    tensorcomp.compress(folder, replace=True)
    assert written == [folder / SHARDS[2]]
    assert tree(folder) == done
    shutil.copy(copy / SHARDS[0], folder)
    written.clear()
    tensorcomp.decompress(folder, replace=True)
    assert len(written) == 3
    assert tree(folder) == before


def test_a_lossy_run_that_was_killed_goes_on(folder):
    options = {"codecs": ["0.embed.weight=uniform(0.01)", "mlp=uniform(0.01)"], "replace": "lossy"}
    copy = shutil.copytree(folder, folder.with_name("copy"))
    tensorcomp.compress(folder, **options)
    done = tree(folder)
    packed(folder / SHARDS[2]).unlink()
    for shard in SHARDS[1:]:
        shutil.copy(copy / shard, folder)
    tensorcomp.compress(folder, **options)  # though the first rule selects none of what is left
    assert tree(folder) == done
    shutil.copy(copy / SHARDS[0], folder)
    with pytest.raises(CheckpointError, match="exists already"):  # of another budget
        tensorcomp.compress(folder, budget=tensorcomp.Budget(min_snr=60), replace="lossy")
    assert (folder / SHARDS[0]).exists()


@pytest.mark.parametrize("other", [b"other", None], ids=["foreign", "of another model"])
def test_a_file_of_the_same_name_is_kept_unless_forced(file, other):
    if other is None:
        other_model = write_safetensors(file.with_name("other.safetensors"), small_model(1))
        tensorcomp.compress(other_model, packed(file))
    else:
        packed(file).write_bytes(other)
    before = tree(file.parent)
    with pytest.raises(CheckpointError, match="exists already; force=True"):
        tensorcomp.compress(file, replace=True)
    assert tree(file.parent) == before
    original = digest(file)
    tensorcomp.compress(file, replace=True, force=True)
    assert not file.exists()
    assert digest(tensorcomp.decompress(packed(file), replace=True)) == original


def test_two_runs_in_opposite_directions_lose_nothing(file):
    tensorcomp.compress(file)
    back = replacing.Replacement(packed(file), file, True, 1, force=False, restore=True)
    back._check(file)
    tensorcomp.compress(file, replace=True)
    with pytest.raises(TensorcompError, match="there is no such file"):
        back._finish()
    assert names(file.parent) == [packed(file).name]


@pytest.mark.parametrize("back", [False, True], ids=["compress", "decompress"])
def test_room_is_looked_for_first(folder, monkeypatch, back):
    largest = folder / "largest.safetensors"
    array = np.random.default_rng(0).standard_normal((512, 512), np.float32)
    write_safetensors(largest, {"w": array})
    if back:
        tensorcomp.compress(folder, replace=True)
    before = tree(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=100_000))
    verb = tensorcomp.decompress if back else tensorcomp.compress
    with pytest.raises(CheckpointError, match=r"expected about .* free in .*model, got 100 kB"):
        verb(folder, replace=True)
    assert tree(folder) == before
    # What a killed run has left is overwritten. A third of the largest file is enough for others.
    left = folder / f".{largest.name if back else packed(largest).name}.tensorcomp-part"
    left.write_bytes(bytes(2_000_000))
    verb(folder, replace=True)
    assert not left.exists()


@pytest.mark.parametrize(
    "words", [["--replace", "{}"], ["{}", "--replace"], ["--replace", "--", "{}"]]
)
def test_the_option_never_takes_the_path(file, capsys, words):
    assert main(["compress", "--json", *(word.format(file) for word in words)]) == 0
    assert json.loads(capsys.readouterr().out)["freed_bytes"] > 0
    assert main(["decompress", "--replace", str(packed(file))]) == 0
    assert "restored" in capsys.readouterr().out
    assert names(file.parent) == [file.name]


def test_the_option_with_its_value(file, capsys):
    assert main(["compress", "--replace", str(file), "--min-snr", "30"]) == 2
    assert "--replace='lossy' allows it" in capsys.readouterr().err
    assert main(["compress", "--replace", "lossy", str(file), "--min-snr", "30"]) == 2
    assert main(["compress", "--replace=lossless", str(file), "-o", "x"]) == 2
    assert "--output" in capsys.readouterr().err
    assert main(["compress", "--replace=lossy", str(file), "--min-snr", "30"]) == 0
    assert "replaced (" in capsys.readouterr().out
    assert names(file.parent) == [packed(file).name]
