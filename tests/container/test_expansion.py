"""A small file that claims to be a large one is refused before anything is decoded."""

import io

import numpy as np
import pytest

import tensorcomp
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.errors import FormatError
from tensorcomp.pipeline.job import compress_source


class Zeros(Checkpoint):
    """Two gigabytes of zeros, of which no page is ever touched."""

    nbytes = 2 << 30
    tensors = (TensorInfo("zeros", "U8", (nbytes,), nbytes),)
    aliases: dict[str, str] = {}  # noqa: RUF012

    def read(self, name):
        return np.zeros(self.nbytes, np.uint8)

    def template(self):
        return SourceTemplate("safetensors")


@pytest.fixture(scope="module")
def bomb():
    file = io.BytesIO()
    compress_source(Zeros(), file)
    return file.getvalue()


def test_the_default_limit_refuses_it(bomb, tmp_path):
    assert len(bomb) < 1 << 18
    with pytest.raises(FormatError, match="2,147,483,648 once decoded"):
        tensorcomp.load(bomb)
    path = tmp_path / "bomb.tc.safetensors"
    path.write_bytes(bomb)
    with pytest.raises(FormatError, match="max_bytes"):
        tensorcomp.load_file(path)
    with pytest.raises(FormatError, match="max_bytes"):
        tensorcomp.decompress(path)
    assert list(tmp_path.iterdir()) == [path]


def test_the_limit_can_be_set():
    data = tensorcomp.save({"a": np.arange(1000, dtype=np.float32)})
    with pytest.raises(FormatError, match="limit of 3,999"):
        tensorcomp.load(data, max_bytes=3999)
    assert tensorcomp.load(data, max_bytes=4000)["a"][999] == 999
