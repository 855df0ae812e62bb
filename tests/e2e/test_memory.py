"""Memory is bounded by chunks, not by the model, and claims are not believed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

_BLOCK = 1 << 20
_MEASURE = """
import sys
import tensorcomp

def kibibytes(entry):
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines[entry].split()[0])

def anonymous():
    # Mapped pages of the input are the system's to take back; what is counted is our own.
    return kibibytes("RssAnon")

class Peak(tensorcomp.Progress):
    peak = 0
    def advance(self, name, nbytes):
        Peak.peak = max(Peak.peak, anonymous())

source, packed, restored = sys.argv[1:]
tensorcomp.save({"x": __import__("numpy").ones(9)})
before = anonymous()
tensorcomp.compress(source, packed, threads=2, progress=Peak())
tensorcomp.decompress(packed, restored, threads=2, progress=Peak())
print(max(Peak.peak - before, 0), kibibytes("VmHWM"))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_file_needs_little_memory(tmp_path):
    from tensorcomp.checkpoints.base import TensorInfo
    from tensorcomp.checkpoints.safetensors.header import build_header

    path = tmp_path / "large.safetensors"
    block = (np.random.default_rng(0).standard_normal(_BLOCK) * 0.02).astype(np.float32)
    shapes = {"large": (51 * 1024, 1024), "small": (1024, 1024), "flat": (23 * _BLOCK,)}
    infos = [
        TensorInfo(name, "F32", shape, 4 * int(np.prod(shape))) for name, shape in shapes.items()
    ]
    with path.open("wb") as file:
        file.write(build_header(infos))
        for number in range(sum(info.nbytes for info in infos) // block.nbytes):
            file.write(np.roll(block, number).tobytes())
    assert path.stat().st_size > 300_000_000
    out = [str(tmp_path / name) for name in ("large.tc.safetensors", "again.safetensors")]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, path, *out], check=True, capture_output=True, text=True
    )
    peak, whole = (int(number) for number in done.stdout.split())
    assert peak < 150_000, f"{peak} KiB beyond the start"
    assert whole < 700_000, f"{whole} KiB, mapped pages included"
    assert Path(out[1]).read_bytes() == path.read_bytes()


_LIMITED = """
import resource, sys
import tensorcomp
tensorcomp.load(tensorcomp.save({"x": __import__("numpy").ones(9)}))
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    tensorcomp.load_file(sys.argv[1], max_bytes=1 << 40)
except tensorcomp.TensorcompError as error:
    print(error)
"""


def test_tensors_larger_than_memory_are_one_clear_error(tmp_path):
    import xxhash

    from tensorcomp.checkpoints.base import SourceTemplate, TensorInfo
    from tensorcomp.checkpoints.safetensors.header import build_header
    from tensorcomp.container.blob import blob_index
    from tensorcomp.container.chunk_grid import MAX_CHUNK_ELEMENTS
    from tensorcomp.container.manifest import METADATA_KEY, Manifest, manifest_to_text
    from tensorcomp.container.records import PlannedTree, TensorRecord

    count = 1 << 12  # 16 GB of one repeated byte
    nbytes = count * MAX_CHUNK_ELEMENTS
    record = TensorRecord("x", "U8", (nbytes,), "integer", nbytes, tree=0, digest="0" * 16)
    trees = (PlannedTree("constant", "a test"),)
    template = SourceTemplate("safetensors", {})
    manifest = Manifest(MAX_CHUNK_ELEMENTS, trees, {"x": record}, template, nbytes)
    payload = b"\1\0"
    blob = payload * count + blob_index(b"", [(2, xxhash.xxh3_64_intdigest(payload))] * count)
    header = build_header(
        [TensorInfo("x", "U8", (len(blob),), len(blob))], {METADATA_KEY: manifest_to_text(manifest)}
    )
    path = tmp_path / "x.tc.safetensors"
    path.write_bytes(header + blob)
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, path], check=True, capture_output=True, text=True
    )
    assert f"its tensors take {nbytes:,} bytes, more memory than there is" in done.stdout
