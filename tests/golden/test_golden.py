"""Files that were once written decode for ever, and equal input gives equal bytes for ever.

``v1/`` holds the files of format version 1, one for each codec tree and one for each kind of
checkpoint and effort; ``v2/`` and so on those of later versions, with lossy checkpoints from
version 3 on, pruned ones from version 4 on and bundles of small tensors from version 6 on. What
needs no version above 9 is written in that: ``v10/`` holds trees of later codecs alone, and bases;
``sources/`` the checkpoints that they were made from. A change of the format is a new version: a
new folder, and the old one stays. Where other codecs are chosen, the files that they change are
written anew, and the earlier ones stay, too: ``v6_uniform/`` is older than the trellis as default.
``pytest --regen-golden`` writes the current version's folder anew; nothing else writes here, and a
missing file is a failure.
"""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import TREES, base_bytes, base_name, file_of, many, model, safetensors_bytes

import tensorcomp
from tensorcomp._zstd_frames import VERSION
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.codecs.registry import own_codecs
from tensorcomp.codecs.text import parse_tree
from tensorcomp.container.manifest import FORMAT_VERSION, LATEST_VERSION
from tensorcomp.container.reader import CompressedFile
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.pruning import Pruning

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
CURRENT = HERE / f"v{FORMAT_VERSION}"
VERSIONS = [HERE / f"v{version}" for version in range(1, FORMAT_VERSION + 1)]
LATER = [HERE / f"v{version}" for version in range(FORMAT_VERSION + 1, LATEST_VERSION + 1)]
EARLIER = [HERE / "v6_uniform"]
TOOLS = CURRENT / "written_by.json"

WHOLE = [
    *(("model.safetensors", effort) for effort in EFFORTS),
    *((name, "balanced") for name in ("unknown.safetensors", "train.pt", "arrays.npz")),
    *(("many.safetensors", effort) for effort in EFFORTS),
]
LOSSY = {"20 dB": Budget(min_snr=20), "6 bits": Budget(bits_per_weight=6)}
PRUNED: dict[str, dict[str, Any]] = {
    "magnitude": {"prune": Pruning("magnitude", 0.75)},
    "pattern": {"prune": Pruning("random(7)", granularity="nm(2, 4)", where="*.weight")},
    "rows 20 dB": {
        "prune": Pruning("magnitude", 0.5, granularity="row", where=["attention", "head"]),
        "budget": Budget(min_snr=20),
        "effort": "max",
    },
}
LAYOUTS_SINCE = 8  # files of every format come back byte for byte
SINCE = {"lossy": 3, "pruned": 4, "many.safetensors": 6}  # the format version that brought them


def whole_path(folder: Path, name: str, effort: str) -> Path:
    return folder / f"{name}.{effort}.tc.safetensors"


def lossy_path(folder: Path, name: str) -> Path:
    return folder / f"lossy_{name.replace(' ', '')}.tc.safetensors"


def pruned_path(folder: Path, name: str) -> Path:
    return folder / f"pruned_{name.replace(' ', '')}.tc.safetensors"


def tree_path(folder: Path, name: str) -> Path:
    return folder / f"tree_{name}.tc.safetensors"


def home(name: str) -> Path:
    """Return the folder in which a tree's file is written."""
    return HERE / f"v{max(FORMAT_VERSION, TREES[name].since)}"


@pytest.fixture(scope="session", autouse=True)
def _written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not request.config.getoption("--regen-golden"):
        return
    CURRENT.mkdir(exist_ok=True)
    if not SOURCES.exists():
        SOURCES.mkdir()
        write_sources()
    if not (SOURCES / "many.safetensors").exists():
        write_safetensors("many.safetensors", many())
    for name, case in TREES.items():
        home(name).mkdir(exist_ok=True)
        tree_path(home(name), name).write_bytes(file_of(case))
        if case.has_base:
            (home(name) / base_name(case)).write_bytes(base_bytes(case))
    for name, effort in WHOLE:
        path = whole_path(CURRENT, name, effort)
        tensorcomp.compress(SOURCES / name, path, effort=effort, threads=1, force=True)
    for name, budget in LOSSY.items():
        path = lossy_path(CURRENT, name)
        tensorcomp.compress(SOURCES / "model.safetensors", path, budget=budget, force=True)
    for name, asked in PRUNED.items():
        path = pruned_path(CURRENT, name)
        tensorcomp.compress(SOURCES / "model.safetensors", path, **asked, force=True)
    TOOLS.write_text(json.dumps({"zstd": list(VERSION)}) + "\n")


def write_sources() -> None:
    """Write the checkpoints; only torch and NumPy decide their bytes, so they are kept."""
    import torch

    tensors = model()
    write_safetensors("model.safetensors", tensors, {"format": "pt", "é": "ü"})
    data = bytes(range(256)) * 3
    odd = [
        TensorInfo("packed", "F4", (48, 32), 768),
        TensorInfo("future", "F99", (5, 7), 768),
        TensorInfo("nothing", "F99", (0,), 0),
    ]
    # With spaces that the library would not write.
    header = build_header(odd)[8:] + b" " * 24
    (SOURCES / "unknown.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + data + data[::-1]
    )
    weight = torch.from_numpy(tensors["mlp.weight"])
    torch.save(
        {
            "model": {"embed": weight, "head": weight.detach(), "rows": weight[10:15]},
            "bf16": weight.bfloat16().t(),
            "step": 7,
            "notes": ["a", None, (1, 2.5), True],
        },
        SOURCES / "train.pt",
    )
    with zipfile.ZipFile(SOURCES / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("mlp.weight", "position_ids", "mask", "step"):
            with archive.open(name + ".npy", "w") as file:
                order = np.asfortranarray if name == "mlp.weight" else np.asarray
                np.lib.format.write_array(file, order(tensors[name]))


def write_safetensors(
    name: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    (SOURCES / name).write_bytes(safetensors_bytes(tensors, metadata))


def needed(path: Path) -> Path:
    assert path.is_file(), f"{path.name} is missing; golden files are part of the repository"
    return path


def same_tools() -> bool:
    """Return whether the frames of small tables come from the same zstd: others pack otherwise."""
    return bool(json.loads(needed(TOOLS).read_text())["zstd"] == list(VERSION))


@pytest.mark.parametrize(
    ("name", "version"),
    [
        pytest.param(name, folder, id=f"{name}-{folder.name}")
        for name, case in TREES.items()
        for folder in VERSIONS[case.since - 1 :] or [home(name)]
    ],
)
def test_every_tree_s_file_decodes(name, version):
    loaded = tensorcomp.load_file(needed(tree_path(version, name)))
    wanted = TREES[name].tensors()
    assert list(loaded) == list(wanted)
    for tensor, array in wanted.items():
        assert loaded[tensor].dtype == array.dtype
        assert loaded[tensor].shape == array.shape
        if parse_tree(TREES[name].tree).lossless:
            assert loaded[tensor].tobytes() == array.tobytes()
    # Of a lossy file the digests say what must be decoded, and the manifest which errors it has.
    with CompressedFile(tree_path(version, name)) as file:
        for tensor, array in wanted.items():
            found = measure(array, loaded[tensor]) if array.dtype.kind in "fV" else ErrorSums()
            if not parse_tree(TREES[name].tree).lossless:
                assert found.rel_l2 == pytest.approx(file.record(tensor).rel_l2, rel=1e-12)
                assert found.rel_l2 <= 1


@pytest.mark.parametrize(
    ("name", "effort", "version"),
    [
        pytest.param(name, effort, version, id=f"{name}-{effort}-{version.name}")
        for name, effort in WHOLE
        for version in VERSIONS[SINCE.get(name, 1) - 1 :]
    ],
)
def test_every_whole_file_is_restored(name, effort, version, tmp_path):
    if name.endswith(".pt"):
        pytest.importorskip("torch")
    source, packed = needed(SOURCES / name), needed(whole_path(version, name, effort))
    assert not [check for check in tensorcomp.verify(packed, source) if check.error]
    restored = tensorcomp.decompress(packed, tmp_path / name)
    if name.endswith(".safetensors") or int(version.name[1:]) >= LAYOUTS_SINCE:
        assert restored.read_bytes() == source.read_bytes()
    elif name.endswith(".npz"):
        with np.load(source) as wanted, np.load(restored) as found:
            assert wanted.files == found.files
            for array in wanted.files:
                assert wanted[array].tobytes("A") == found[array].tobytes("A")
                assert wanted[array].dtype == found[array].dtype
    else:
        import torch

        objects = [torch.load(path, weights_only=True) for path in (source, restored)]
        wanted, found = objects
        assert (wanted["step"], wanted["notes"]) == (found["step"], found["notes"])
        assert wanted["bf16"].equal(found["bf16"])
        for part, tensor in wanted["model"].items():
            assert tensor.equal(found["model"][part])
        found["model"]["embed"][10, 0] = 1
        assert found["model"]["head"][10, 0] == 1
        assert found["model"]["rows"][0, 0] == 1


@pytest.mark.parametrize("name", TREES)
def test_trees_write_the_same_bytes_as_ever(name):
    if not same_tools():
        pytest.skip("another version of zstd")
    if not TREES[name].same_everywhere:
        pytest.skip("another machine may write other bytes")
    assert file_of(TREES[name]) == needed(tree_path(home(name), name)).read_bytes()
    if TREES[name].has_base:
        assert base_bytes(TREES[name]) == needed(home(name) / base_name(TREES[name])).read_bytes()


@pytest.mark.parametrize(("name", "effort"), WHOLE)
def test_checkpoints_compress_to_the_same_bytes_as_ever(name, effort, tmp_path):
    if name.endswith(".pt"):
        pytest.importorskip("torch")
    if not same_tools():
        pytest.skip("another version of zstd")
    done = tensorcomp.compress(needed(SOURCES / name), tmp_path / "x", effort=effort)
    assert done.path.read_bytes() == needed(whole_path(CURRENT, name, effort)).read_bytes()


@pytest.mark.parametrize(
    "version", [*VERSIONS[SINCE["lossy"] - 1 :], *EARLIER], ids=lambda path: path.name
)
@pytest.mark.parametrize("name", LOSSY)
def test_lossy_checkpoints_keep_what_they_promise(name, version):
    source, packed = needed(SOURCES / "model.safetensors"), needed(lossy_path(version, name))
    assert not [check for check in tensorcomp.verify(packed, source) if check.error]


@pytest.mark.parametrize(
    "version", [*VERSIONS[SINCE["pruned"] - 1 :], *EARLIER], ids=lambda path: path.name
)
@pytest.mark.parametrize("name", PRUNED)
def test_pruned_checkpoints_are_what_they_say(name, version):
    source, packed = needed(SOURCES / "model.safetensors"), needed(pruned_path(version, name))
    assert not [check for check in tensorcomp.verify(packed, source) if check.error]
    with CompressedFile(packed) as file:
        records = [record for record in file.manifest.tensors.values() if record.pruned]
        loaded = tensorcomp.load_file(packed)
    assert records
    for record in records:
        assert record.pruned is not None
        assert np.count_nonzero(loaded[record.name] == 0) >= record.pruned.count > 0


@pytest.mark.parametrize("name", [*LOSSY, *PRUNED])
def test_lossy_and_pruned_checkpoints_compress_to_the_same_bytes_as_ever(name, tmp_path):
    if not same_tools():
        pytest.skip("another version of zstd")
    asked = PRUNED[name] if name in PRUNED else {"budget": LOSSY[name]}
    packed = (pruned_path if name in PRUNED else lossy_path)(CURRENT, name)
    done = tensorcomp.compress(needed(SOURCES / "model.safetensors"), tmp_path / "x", **asked)
    assert done.path.read_bytes() == needed(packed).read_bytes()


def test_every_codec_has_a_golden_file():
    used = {codec.id for case in TREES.values() for codec in parse_tree(case.tree).walk()}
    assert used == set(own_codecs())


def test_most_payloads_of_golden_trees_are_coded_and_not_raw():
    for name in TREES:
        with CompressedFile(needed(tree_path(home(name), name))) as file:
            held = [file.blob_bytes(info.name) for info in file.tensors]
            if name != "raw":
                assert sum(held) < sum(info.nbytes for info in file.tensors) + 16 * len(held), name


def test_golden_files_are_small():
    folders = [SOURCES, *VERSIONS, *LATER, *EARLIER]
    sizes = [path.stat().st_size for folder in folders for path in folder.iterdir()]
    assert max(sizes) < 48_000
    assert sum(sizes) < 8_000 * len(sizes)
