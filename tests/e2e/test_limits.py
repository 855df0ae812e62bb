"""Limits of the system are kept, such as those of file descriptors."""

import subprocess
import sys
import tempfile

import numpy as np
import pytest
from checkpoint_files import write_safetensors

from tensorcomp.io import memory_pages
from tensorcomp.sparsity.measure import sparsity_report

SHARDS, DESCRIPTORS = 30, 20

_VERBS = """
import resource, sys
from pathlib import Path
import numpy as np
import tensorcomp as tc
from tensorcomp.benchmark.run import bench
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.selection.request import Pruning
from tensorcomp.sparsity.measure import sparsity_report as sparsity

root, limit = Path(sys.argv[1]), int(sys.argv[2])
model = root / "model"
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
threads = 4
half = {"prune": Pruning("magnitude", 0.5), "threads": threads, "effort": "fast"}
size = {"budget": tc.Budget(target_ratio=3), "threads": threads, "effort": "fast"}
for name, options in {"exact": {"threads": threads}, "size": size, "half": half}.items():
    tc.compress(model, root / name, force=True, **options)
tc.plan(model, **half)
tc.decompress(root / "exact", root / "again", threads=threads, force=True)
for name in ("exact", "half"):
    assert not any(check.error for check in tc.verify(root / name, model, threads=threads))
assert tc.compare(model, root / "exact", threads=threads).exact
assert tc.compare(root / "exact", root / "again", threads=threads).exact
assert sparsity(root / "half", threads=threads).zeros == sparsity(model).elements // 2
bench(model, strategies=[Strategy("raw", "raw")], threads=threads)
assert len(tc.inspect(root / "exact").tensors) == len(tc.inspect(model).tensors)
files = sorted((root / "exact").glob("*.tc.safetensors"))
opened = [tc.safe_open(file) for file in files]
tensors = [file.get_slice(name) for file in opened for name in file.keys()]
assert sum(tensor[:1].size for tensor in tensors) > len(files)
kept = [tc.load_file(file) for file in files]
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of descriptors")
def test_models_of_more_shards_than_descriptors(tmp_path):
    generator = np.random.default_rng(0)
    for number in range(1, SHARDS + 1):
        path = tmp_path / "model" / f"model-{number:05}-of-{SHARDS:05}.safetensors"
        path.parent.mkdir(exist_ok=True)
        weight = generator.standard_normal((64, 64)).astype(np.float32)
        write_safetensors(path, {f"layers.{number}.mlp.weight": weight})
    command = [sys.executable, "-c", _VERBS, tmp_path, str(DESCRIPTORS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_OPENED = """
import resource, sys
from tensorcomp.checkpoints.open import open_checkpoint

open_checkpoint(sys.argv[1]).close()  # which imports what it needs
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
opened = [open_checkpoint(sys.argv[1]) for _ in range(100)]
assert all(checkpoint.read("a").size == 24 for checkpoint in opened)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of descriptors")
@pytest.mark.parametrize("name", ["a.npz", "a.pt", "a.safetensors"])
def test_an_open_checkpoint_of_any_format_holds_no_descriptor(name, tmp_path):
    path, array = tmp_path / name, np.ones(3)
    if name.endswith("pt"):
        torch = pytest.importorskip("torch")
        torch.save({"a": torch.ones(6)}, path)
    elif name.endswith("npz"):
        np.savez(path, a=array)
    else:
        write_safetensors(path, {"a": array})
    command = [sys.executable, "-c", _OPENED, path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_PEAK = """
import sys
import tensorcomp
from tensorcomp.io import memory_pages
from tensorcomp.selection.request import Pruning

def anonymous():
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["RssAnon"].split()[0])

class Peak(tensorcomp.Progress):
    highest = 0
    def advance(self, name, nbytes):
        Peak.highest = max(Peak.highest, anonymous())

source, out = sys.argv[1:]
memory_pages._IN_FILE = 1 << 22
tensorcomp.save({"x": __import__("numpy").ones(9)})
options = {"threads": 1, "progress": Peak()}
before = anonymous()
if out == source:
    tensorcomp.compare(source, out, **options)
else:
    half = Pruning("magnitude", 0.5)
    tensorcomp.compress(source, out, prune=half, effort="fast", **options)
print(Peak.highest - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_tensor_is_pruned_in_a_file(tmp_path):
    block = np.random.default_rng(0).standard_normal((1 << 11, 1 << 10)).astype(np.float32)
    source, out = tmp_path / "model.safetensors", tmp_path / "model.tc.safetensors"
    write_safetensors(
        source, {"layers.0.mlp.weight": np.concatenate([block + i for i in range(6)])}
    )
    command = [sys.executable, "-c", _PEAK, source, out]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 40_000, "KiB, of a tensor of 49,152"
    assert sparsity_report(out).sparsity == 0.5


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_for_a_tensor_among_many(tmp_path):
    path, count = tmp_path / "model.safetensors", 8_000
    write_safetensors(path, {f"layers.{i}.mlp.weight": np.full(3, i) for i in range(count)})
    command = [sys.executable, "-c", _PEAK, path, path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) / count < 2.9, "KiB a tensor"


def test_scratch_arrays_are_in_memory_where_there_is_no_room_for_a_file(monkeypatch):
    def full(*_: object) -> None:
        raise OSError("no space")

    wanted = np.arange(1 << 16, dtype=np.uint16)
    monkeypatch.setattr(memory_pages, "_IN_FILE", 1 << 10)
    for _ in range(2):
        array = memory_pages.scratch(wanted.size, wanted.dtype)
        array[:] = wanted
        assert np.array_equal(array, wanted)
        monkeypatch.setattr(tempfile, "TemporaryFile", full)
