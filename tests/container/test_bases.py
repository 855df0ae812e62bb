"""Files that are coded against others: bases that moved, changed, or are not there."""

import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from checkpoint_files import write_safetensors
from tampering import manifest_of, pack_manifest, with_metadata

import tensorcomp
from tensorcomp import Budget, compress, decompress, inspect, load_file, verify
from tensorcomp.container.manifest import FORMAT_VERSION, LATEST_VERSION
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import FormatError, MissingBaseError, PlanError

RANDOM = np.random.default_rng(5)
BASE = {
    "embedding.weight": RANDOM.standard_normal((500, 64)).astype(np.float32),
    "layers.0.mlp.weight": RANDOM.standard_normal((256, 300)).astype(np.float32),
    "layers.1.mlp.weight": RANDOM.standard_normal((256, 300)).astype(np.float32),
    **{
        f"layers.{n}.norm.weight": RANDOM.standard_normal(256).astype(np.float32) for n in range(20)
    },
}


def tuned(base, scale=1e-4, seed=0):
    """Return weights near others, of their types."""
    random = np.random.default_rng(seed)
    return {
        name: (array + scale * random.standard_normal(array.shape)).astype(array.dtype)
        for name, array in base.items()
    }


def as_type(weights, dtype):
    return {name: array.astype(dtype) for name, array in weights.items()}


@pytest.fixture
def base(tmp_path):
    (tmp_path / "base").mkdir()
    return write_safetensors(tmp_path / "base" / "base.safetensors", BASE)


def coded(tmp_path, weights, base, **options):
    """Compress weights against a base; return their file and the compressed one."""
    new = write_safetensors(tmp_path / "new.safetensors", weights)
    compress(new, tmp_path / "new.tc.safetensors", base=base, force=True, **options)
    return new, tmp_path / "new.tc.safetensors"


def restored(file, tmp_path, **options):
    return decompress(file, tmp_path / "again.safetensors", force=True, **options).read_bytes()


def test_a_base_makes_a_file_smaller(tmp_path, base):
    new, file = coded(tmp_path, tuned(BASE), base)
    alone = compress(new, tmp_path / "alone.tc.safetensors")
    summary = inspect(file)
    assert summary.ratio > 1.5 * alone.ratio
    assert restored(file, tmp_path, bases=base) == new.read_bytes()
    assert [base.name for base in summary.bases] == ["base.safetensors"]
    assert "against base.safetensors" in str(summary)
    assert summary.to_dict()["bases"][0]["nbytes"] == base.stat().st_size


def test_only_files_with_a_base_have_the_new_format(tmp_path, base):
    new, file = coded(tmp_path, tuned(BASE), base)
    other = {name: RANDOM.standard_normal(x.shape).astype(x.dtype) for name, x in BASE.items()}
    unlike = coded(tmp_path / "base", other, base)[1]
    alone = compress(new, tmp_path / "alone.tc.safetensors").path
    for path, version in (
        (file, LATEST_VERSION),
        (unlike, FORMAT_VERSION),  # nothing is gained by the base, which is not needed then
        (alone, FORMAT_VERSION),
    ):
        with CompressedFile(path) as opened:
            assert opened.manifest.version == version
            assert bool(opened.manifest.bases) == (version == LATEST_VERSION)


def moved(base, folder):
    shutil.move(base, folder / "moved.safetensors")


def saved_again(base, folder):
    write_safetensors(base, dict(reversed(BASE.items())), metadata={"other": "header"})


def compressed(base, folder):
    compress(base, folder / "small.tc.safetensors")
    base.unlink()


def as_torch(base, folder):
    torch = pytest.importorskip("torch")
    torch.save({name: torch.from_numpy(array) for name, array in BASE.items()}, folder / "base.pt")
    base.unlink()


@pytest.mark.parametrize("change", [moved, saved_again, compressed, as_torch])
def test_a_base_is_found_again_by_its_content(tmp_path, base, change):
    new, file = coded(tmp_path, tuned(BASE), base)
    change(base, base.parent)
    assert restored(file, tmp_path, bases=base.parent) == new.read_bytes()
    assert restored(shutil.move(file, base.parent / file.name), tmp_path) == new.read_bytes()


def test_a_base_that_is_missing_or_another_is_named(tmp_path, base):
    _, file = coded(tmp_path, tuned(BASE), base)
    other = write_safetensors(tmp_path / "other.safetensors", tuned(BASE, seed=2))
    out = tmp_path / "again.safetensors"
    named = r"'base\.safetensors' \([\d,]+ bytes, digest [0-9a-f]{32}\)"
    for bases in ((), other, base.parent.parent / "other.safetensors"):
        with pytest.raises(MissingBaseError, match=named):
            decompress(file, out, bases=bases)
        with pytest.raises(MissingBaseError, match=named):
            verify(file, bases=bases)
        with pytest.raises(MissingBaseError, match=named):
            load_file(file, bases=bases)
    with pytest.raises(tensorcomp.errors.MissingFileError):
        decompress(file, out, bases=tmp_path / "nothing")
    assert not out.exists()
    assert inspect(file).bases  # which needs none


def test_a_base_of_which_one_element_changed_is_another(tmp_path, base):
    new, file = coded(tmp_path, tuned(BASE), base)
    for name in ("layers.1.mlp.weight", "layers.7.norm.weight"):
        changed = {key: array.copy() for key, array in BASE.items()}
        changed[name].reshape(-1)[3] += 1
        other = write_safetensors(tmp_path / "base.safetensors", changed)
        with pytest.raises(MissingBaseError):
            restored(file, tmp_path, bases=other)
        with pytest.raises(MissingBaseError):
            verify(file, bases=other)
        other.unlink()
    assert restored(file, tmp_path, bases=[base]) == new.read_bytes()


def test_chains(tmp_path, base):
    previous, steps = base, []
    weights = BASE
    for step in range(8):
        weights = tuned(weights, seed=step)
        new = write_safetensors(tmp_path / f"step{step}.safetensors", weights)
        steps.append(new.read_bytes())
        file = tmp_path / f"step{step}.tc.safetensors"
        compress(new, file, base=previous, chunk_elements=1 << 14)
        new.unlink()
        previous = file
        if step == 0:
            shutil.move(base, tmp_path / "base.safetensors")
    for step, data in enumerate(steps):
        assert restored(tmp_path / f"step{step}.tc.safetensors", tmp_path) == data
    with tensorcomp.safe_open(previous) as opened:
        rows = opened.get_slice("layers.1.mlp.weight")[100:117]
    assert np.array_equal(rows, weights["layers.1.mlp.weight"][100:117])
    (tmp_path / "step3.tc.safetensors").unlink()
    with pytest.raises(MissingBaseError, match=r"step3\.tc"):
        restored(previous, tmp_path)


def test_a_deep_chain_holds_little_memory(tmp_path):
    weights = {"w": RANDOM.standard_normal((1024, 512)).astype(np.float32)}
    previous = None
    for step in range(12):
        new = write_safetensors(tmp_path / "new.safetensors", weights)
        file = tmp_path / f"step{step}.tc.safetensors"
        compress(new, file, base=previous, chunk_elements=1 << 18)
        weights, previous = tuned(weights, seed=step), file
    with tensorcomp.safe_open(previous) as opened:
        tracemalloc.start()
        found = opened.get_tensor("w")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 3 * found.nbytes


def test_a_file_that_is_its_own_base_is_refused(tmp_path, base):
    file = coded(tmp_path, tuned(BASE), base)[1]
    with pytest.raises(MissingBaseError):
        verify(file, bases=file)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.float32, ml_dtypes.bfloat16),
        (ml_dtypes.bfloat16, np.float32),
        (np.float16, ml_dtypes.bfloat16),
        (np.float64, np.float32),
    ],
)
def test_types_that_differ(tmp_path, old, new):
    rounded = as_type(BASE, old)
    base = write_safetensors(tmp_path / "base.safetensors", rounded)
    source, file = coded(tmp_path, as_type(tuned(BASE), new), base)
    assert restored(file, tmp_path) == source.read_bytes()


def test_small_tensors_of_all_types_together(tmp_path):
    types = [np.bool_, np.complex64, np.int8, np.float64, ml_dtypes.float8_e4m3fn]
    old = {
        f"{np.dtype(dtype).name}.{n}": (RANDOM.standard_normal(200) * 3).astype(dtype)
        for dtype in types
        for n in range(20)
    }
    base = write_safetensors(tmp_path / "base.safetensors", old)
    changed = {name: np.concatenate([array[:150], array[50:100]]) for name, array in old.items()}
    new, file = coded(tmp_path, changed, base)
    assert restored(file, tmp_path) == new.read_bytes()
    assert inspect(file).bases


def test_renamed_and_longer_and_tied_and_other_tensors(tmp_path, base):
    weights = tuned(BASE)
    weights = {f"model.{name}": array for name, array in weights.items()}
    longer = np.vstack([weights["model.embedding.weight"], np.ones((12, 64), np.float32)])
    more = {
        "embedding.weight": longer,
        "layers.0.mlp.weight": np.zeros((3, 5), np.float32),  # another shape
        "head.weight": longer,
        "mask": np.arange(10),
        "nothing": np.zeros((0, 4), np.float32),
        "scalar": np.float32(1),
    }
    new, file = coded(tmp_path, weights | more, base)
    assert restored(file, tmp_path, bases=base) == new.read_bytes()
    with CompressedFile(file) as opened:
        records = opened.manifest.tensors
        renamed = records["model.layers.1.mlp.weight"].reference
        assert renamed is not None
        assert renamed.tensor == "layers.1.mlp.weight"
        assert records["embedding.weight"].reference is not None
        assert records["mask"].reference is None
    alone = compress(new, tmp_path / "alone.tc.safetensors").output_bytes
    assert file.stat().st_size < 0.8 * alone


def test_folders(tmp_path, base):
    (tmp_path / "model").mkdir()
    names = list(BASE)
    weights = tuned(BASE)
    for number, own in enumerate((names[:2], names[2:])):
        part = {name: weights[name] for name in own}
        write_safetensors(tmp_path / "model" / f"part-{number}.safetensors", part)
    out = compress(tmp_path / "model", tmp_path / "out.tc", base=base).path
    with ThreadPoolExecutor(2) as executor:
        with (
            CompressedFile(out / "part-0.tc.safetensors", [base]) as opened,
            pytest.raises(PlanError, match="expected the path of base"),
        ):
            compress(tmp_path / "model", tmp_path / "s.tc", base=opened, executor=executor)
        spread = compress(tmp_path / "model", tmp_path / "s.tc", base=base, executor=executor)
    sizes = [(path.stat().st_size, path.name) for path in sorted(out.iterdir())]
    assert sizes == [(path.stat().st_size, path.name) for path in sorted(spread.path.iterdir())]
    decompress(out, tmp_path / "again", bases=base)
    for file in (tmp_path / "model").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(MissingBaseError):
        compress(tmp_path / "model", tmp_path / "second.tc", base=out)
    compress(tmp_path / "model", tmp_path / "second.tc", base=out, bases=base)
    used = [f"part-{number}.tc.safetensors" for number in range(2)]
    assert [one.name for one in inspect(tmp_path / "second.tc").bases] == used
    assert not [check for check in verify(tmp_path / "second.tc", bases=[out, base]) if check.error]


def test_refusals(tmp_path, base):
    new = write_safetensors(tmp_path / "new.safetensors", tuned(BASE))
    with pytest.raises(PlanError, match="no base"):
        compress(new, base=base, replace=True)


def test_no_output_replaces_a_base(tmp_path, base):
    """Nor a base of a base, nor the folder that it is in: the file could not be read then."""
    new, file = coded(tmp_path, tuned(BASE), base)
    newer = write_safetensors(tmp_path / "newer.safetensors", tuned(BASE, seed=3))
    second = tmp_path / "second.tc.safetensors"
    compress(newer, second, base=file, bases=base)
    (tmp_path / "models").mkdir()
    for name in ("base.safetensors", "x.safetensors"):
        write_safetensors(tmp_path / "models" / name, tuned(BASE, seed=4))
    shutil.copy(base, link := tmp_path / "base" / "other.safetensors")
    link.unlink()
    link.symlink_to(base)
    coded_folder = compress(tmp_path / "models", tmp_path / "models.tc", base=base).path
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for write in (
        lambda: compress(new, base, base=base, force=True),
        lambda: compress(new, base, base=link, force=True),
        lambda: compress(new, base, base=base.parent, force=True),
        lambda: compress(newer, base, base=file, bases=base, force=True),
        lambda: compress(tmp_path / "models", base.parent, base=base, force=True),
        lambda: decompress(file, base, bases=base, force=True),
        lambda: decompress(second, base, bases=[file, base], force=True),
        lambda: decompress(second, file, bases=[file, base], force=True),
        lambda: decompress(coded_folder, base.parent, bases=base, force=True),
    ):
        with pytest.raises(tensorcomp.errors.CheckpointError):
            write()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_lossy_tensors_beside_a_base(tmp_path, base):
    new, file = coded(tmp_path, tuned(BASE), base, budget=Budget(max_rel_l2=1e-3))
    assert not [check for check in verify(file, new, bases=base) if check.error]


@pytest.mark.parametrize("position", range(0, 1000, 37))
def test_damage_is_found(tmp_path, base, position):
    file = coded(tmp_path, tuned({"w": BASE["layers.0.mlp.weight"]}), base)[1]
    data = bytearray(file.read_bytes())
    data[position * len(data) // 1000] ^= 1 << (position % 8)
    file.write_bytes(bytes(data))
    with pytest.raises((FormatError, MissingBaseError, tensorcomp.errors.TensorcompError)):
        restored(file, tmp_path, bases=base)


def tampered(file, change):
    """Change the manifest of a file in place."""
    data = file.read_bytes()
    manifest = manifest_of(data)
    change(manifest)
    file.write_bytes(with_metadata(data, pack_manifest(manifest, LATEST_VERSION)))
    return file


@pytest.mark.parametrize(
    "change",
    [
        {"name": "\ud800"},
        {"name": "a\0b"},
        {"name": "/etc/base.safetensors"},
        {"name": "s3://bucket/base.safetensors"},
        {"name": None},
        {"nbytes": -1},
        {"digest": "\x1b[31m"},
        {"digest": 5},
    ],
)
def test_hostile_records_of_bases(tmp_path, base, change):
    file = coded(tmp_path, tuned(BASE), base)[1]
    tampered(file, lambda manifest: manifest["bases"][0].update(change))
    for read in (restored, lambda file, folder: load_file(file)):
        with pytest.raises(FormatError):
            read(file, tmp_path)


def test_few_bytes_that_claim_many_given_a_base(tmp_path, base):
    file = coded(tmp_path, BASE, base)[1]

    def change(manifest):
        manifest["tensors"]["layers.1.mlp.weight"]["shape"] = [1 << 30, 300]
        manifest["tensors"]["layers.1.mlp.weight"]["chunk_elements"] = 1 << 22

    tampered(file, change)
    for read in (restored, lambda file, _, bases: load_file(file, bases=bases)):
        with pytest.raises(FormatError, match="claim to be 1,28"):
            read(file, tmp_path, bases=base)


def test_bases_that_two_files_share_are_opened_once(tmp_path, base):
    new, file = coded(tmp_path, BASE, base)
    opened = []
    for step in range(20):  # each file needs the one before twice: 2**20 ways to the first

        def change(manifest, step=step):
            manifest["bases"] = 2 * [manifest["bases"][0] | {"name": f"{step}.tc.safetensors"}]
            manifest["tensors"]["layers.1.mlp.weight"]["reference"][0] = 1

        next_file = tmp_path / f"{step + 1}.tc.safetensors"
        shutil.copy(file, tmp_path / f"{step}.tc.safetensors") if step == 0 else None
        shutil.copy(file, next_file)
        tampered(next_file, change)
        opened.append(next_file)
    assert restored(opened[-1], tmp_path, bases=base) == new.read_bytes()


def test_no_chain_is_longer_than_can_be_read(tmp_path, base, monkeypatch):
    monkeypatch.setattr("tensorcomp.container.bases.MAX_DEPTH", 3)
    last = base
    for step in range(3):
        new = write_safetensors(tmp_path / "new.safetensors", tuned(BASE, seed=step))
        compress(new, tmp_path / f"{step}.tc.safetensors", base=last, bases=base)
        last = tmp_path / f"{step}.tc.safetensors"
    assert restored(last, tmp_path, bases=base) == new.read_bytes()
    write_safetensors(new, tuned(BASE, seed=step + 1))
    with pytest.raises(FormatError, match="more than 3 bases deep; give an earlier base"):
        compress(new, tmp_path / "3.tc.safetensors", base=last, bases=base)
    assert not (tmp_path / "3.tc.safetensors").exists()


def test_a_folder_in_a_store_is_searched_by_name(tmp_path, base):
    fsspec = pytest.importorskip("fsspec")
    new, file = coded(tmp_path, tuned(BASE), base)
    fsspec.filesystem("memory").pipe("/bases/base.safetensors", base.read_bytes())
    assert restored(file, tmp_path, bases="memory://bases") == new.read_bytes()


def test_folders_of_models_in_a_store_need_each_other(tmp_path):
    pytest.importorskip("fsspec")
    for seed in range(3):
        write_safetensors(tmp_path / f"models/{seed}/m.safetensors", tuned(BASE, seed=seed))
    compress(tmp_path / "models", "memory://family/models.tc", dedup=True)
    decompress("memory://family/models.tc", tmp_path / "again")
    for seed in range(3):
        name = f"{seed}/m.safetensors"
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "models" / name).read_bytes()


def test_a_base_of_other_tensors_is_told(tmp_path, base, caplog):
    other = write_safetensors(tmp_path / "other.safetensors", {"x": np.zeros(3, np.int64)})
    coded(tmp_path, tuned(BASE), other)
    assert "the base has none of its tensors" in caplog.text
    caplog.clear()
    coded(tmp_path, tuned(BASE), base)
    assert not caplog.text
