"""Checkpoints of a real S3 server, read by ranges: how many, of which version, with what faults."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from object_store import CUT, DROP
from safetensors.numpy import load_file, save_file

import tensorcomp
from tensorcomp.errors import CheckpointError, MissingFileError
from tensorcomp.io import store_errors
from tensorcomp.io.locations import location

HEAD = 1 << 17


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(store_errors, "FIRST_WAIT", 0.01)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Write a checkpoint with a large embedding, and the same one compressed; return both paths."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((512, 512)).astype(np.float32)
    tensors = {
        "embed": torch.from_numpy(random.standard_normal((16_000, 256))).bfloat16(),
        "norm": torch.from_numpy(random.standard_normal(70_000).astype(np.float32)),
        **{f"layers.{n}.norm": torch.from_numpy(weight[n].copy()) for n in range(20)},
        **{f"layers.{n}.weight": torch.from_numpy(weight + n) for n in range(3)},
    }
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    from safetensors.torch import save_file as save_torch

    save_torch(tensors, path, {"format": "pt"})
    return path, tensorcomp.compress(path).path


def test_requests_are_few_and_answers_equal(s3, model):
    plain, compressed = model
    url = s3.put("m.tc.safetensors", compressed.read_bytes())
    wanted = load_file_torch(plain)
    s3.requests.clear()

    def asked():
        found = [(request.method, request.range is not None) for request in s3.requests]
        s3.requests.clear()
        assert all(pair == ("GET", True) for pair in found)
        return len(found)

    with tensorcomp.safe_open(url, "pt") as file:
        assert asked() == 1
        assert torch.equal(file.get_slice("embed")[5000:5010], wanted["embed"][5000:5010])
        assert asked() == 2
        assert torch.equal(file.get_tensor("norm"), wanted["norm"])
        assert asked() == 1
    loaded = tensorcomp.load_file(url, "pt")
    assert all(torch.equal(loaded[name], wanted[name]) for name in wanted)
    assert asked() == 1 + -(-compressed.stat().st_size // (8 << 20))


def load_file_torch(path):
    from safetensors.torch import load_file as load_torch

    return load_torch(path)


def test_all_requests_are_for_the_version_that_was_opened(s3, model):
    url = s3.put("m.tc.safetensors", model[1].read_bytes())
    with tensorcomp.safe_open(url) as file:
        s3.requests.clear()
        file.get_slice("embed")[5]
        assert all("if-match" in request.headers for request in s3.requests)
        s3.put("m.tc.safetensors", model[1].read_bytes()[::-1])
        with pytest.raises(CheckpointError, match="was changed while it was read"):
            file.get_slice("embed")[15_000]


def test_verbs_read_folders(s3, model, tmp_path):
    plain, _ = model
    s3.put("model/a.safetensors", plain.read_bytes())
    save_file({"weight": np.arange(10_000, dtype=np.float32)}, tmp_path / "b.safetensors")
    s3.put("model/sub/b.safetensors", (tmp_path / "b.safetensors").read_bytes())
    s3.put("model/config.json", b"{}")
    made = tensorcomp.compress(s3.url("model"), tmp_path / "model.tc").path
    for file in made.rglob("*.*"):
        s3.put(f"model.tc/{file.relative_to(made).as_posix()}", file.read_bytes())
    assert tensorcomp.inspect(s3.url("model.tc")).to_dict() == tensorcomp.inspect(made).to_dict()
    assert not any(c.error for c in tensorcomp.verify(s3.url("model.tc"), s3.url("model")))
    back = tensorcomp.decompress(s3.url("model.tc"), tmp_path / "back")
    assert (back / "a.safetensors").read_bytes() == plain.read_bytes()
    assert (back / "config.json").read_bytes() == b"{}"
    assert load_file(back / "sub/b.safetensors")["weight"][-1] == 9999


def test_the_command_line_takes_urls(s3, model):
    url = s3.put("m.tc.safetensors", model[1].read_bytes())
    command = [sys.executable, "-m", "tensorcomp"]
    shown = subprocess.run([*command, "verify", url], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    gone = subprocess.run([*command, "verify", url + "x"], capture_output=True, text=True)
    assert gone.returncode == 2
    assert gone.stderr.strip().endswith("there is no such file")
    assert len(gone.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("fault", [500, 503, CUT, DROP])
def test_faults_that_pass(s3, model, fault):
    url = s3.put("m.tc.safetensors", model[1].read_bytes())
    asked = []

    def first_two(request):
        asked.append(request)
        return fault if len(asked) in (1, 3) else None

    s3.fault = first_two
    assert not any(check.error for check in tensorcomp.verify(location(url)))


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (500, CheckpointError, "answers with status 500"),
        (DROP, CheckpointError, "the server cannot be reached, or breaks off"),
        (403, CheckpointError, "access is denied"),
    ],
)
def test_faults_that_stay_are_one_line(s3, model, fault, error, message):
    url = s3.put("m.tc.safetensors", model[1].read_bytes())
    s3.fault = lambda _request: fault
    with pytest.raises(error, match=message) as raised:
        tensorcomp.load_file(url)
    assert "\n" not in str(raised.value)


def test_what_is_not_there_is_named(s3):
    with pytest.raises(MissingFileError, match=r"nothing\.safetensors: .* there is no such"):
        tensorcomp.load_file(s3.url("nothing.safetensors"))
    with pytest.raises(MissingFileError, match="there is no such bucket"):
        tensorcomp.load_file("s3://no-such-bucket/a.safetensors")


def test_credentials_that_are_missing(s3, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(CheckpointError, match="there are no credentials for it"):
        tensorcomp.load_file(s3.url("a.safetensors"))
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    "key", ["model/../../../out.txt", "model/sub/../out.safetensors", "model/./x"]
)
def test_no_key_leads_out_of_the_output(s3, tmp_path, key):
    s3.clear()
    tensorcomp.save_file({"w": np.zeros(100, np.float32)}, s3.url("model/a.safetensors"))
    s3.put(key, b"x" * 100)
    with pytest.raises(CheckpointError, match=r"holds '\.+', which is no name of a file on a disk"):
        tensorcomp.decompress(s3.url("model"), tmp_path / "a/b/c/model")
    assert not list(tmp_path.rglob("*out*"))
