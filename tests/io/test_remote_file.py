"""Reading checkpoints behind URLs, of a web server that works and of one that does not."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from range_server import CUT, LONG, SHIFTED, SLOW, WHOLE, RangeServer, range_server

import tensorcomp
from tensorcomp.checkpoints.open import detect_format, open_checkpoint
from tensorcomp.errors import CheckpointError, FormatError, MissingFileError, TensorcompError
from tensorcomp.io import remote_file, store_errors
from tensorcomp.io.locations import location
from tensorcomp.io.remote_file import RemoteFile

pytest.importorskip("aiohttp")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setattr(store_errors, "FIRST_WAIT", 0.01)
    with range_server() as running:
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return a checkpoint with a large embedding, and the same one compressed."""
    random = np.random.default_rng(0)
    embedding = random.standard_normal((16_000, 256)).astype(np.float16)
    tensors = {f"layers.{n}.norm": random.standard_normal(128, np.float32) for n in range(20)}
    tensors |= {
        f"layers.{n}.weight": random.standard_normal((512, 512), np.float32) for n in range(4)
    }
    tensors |= {"embed": embedding, "embed_tied": embedding.copy()}
    path = tmp_path_factory.mktemp("remote") / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, {"format": "pt"})
    made = tensorcomp.compress(path).path
    return {"model.safetensors": path.read_bytes(), "model.tc.safetensors": made.read_bytes()}


def equal(some: dict[str, np.ndarray], data: bytes) -> bool:
    others = safetensors.numpy.load(data)
    return some.keys() == others.keys() and all(
        some[name].tobytes() == others[name].tobytes() for name in others
    )


def test_opening_takes_one_request_and_rows_two(
    server: RangeServer, files: dict[str, bytes]
) -> None:
    url = server.put("m.tc.safetensors", files["model.tc.safetensors"])
    wanted = safetensors.numpy.load(files["model.safetensors"])
    with tensorcomp.safe_open(url) as file:
        assert server.ranges() == ["bytes=0-131071"]
        rows = file.get_slice("embed")[9000:9010]
        assert len(server.ranges()) == 2
        weight = file.get_tensor("layers.3.weight")
        assert len(server.ranges()) == 1
        assert file.get_slice("layers.3.norm")[:].tobytes() == wanted["layers.3.norm"].tobytes()
    assert rows.tobytes() == wanted["embed"][9000:9010].tobytes()
    assert weight.tobytes() == wanted["layers.3.weight"].tobytes()


def test_rows_of_a_file_that_is_not_compressed(
    server: RangeServer, files: dict[str, bytes]
) -> None:
    url = server.put("m.safetensors", files["model.safetensors"])
    wanted = safetensors.numpy.load(files["model.safetensors"])
    with tensorcomp.safe_open(url) as file:
        rows = file.get_slice("embed")[9000:9010]
        assert len(server.ranges()) == 2
    assert rows.tobytes() == wanted["embed"][9000:9010].tobytes()


@pytest.mark.parametrize("scheme", ["http", "memory"])
def test_every_verb_reads_urls(
    server: RangeServer, files: dict[str, bytes], tmp_path: Path, scheme: str
) -> None:
    urls = []
    for name, data in files.items():
        if scheme == "http":
            urls.append(server.put(name, data))
        else:
            urls.append(f"memory://test_every_verb/{name}")
            location(urls[-1]).write_bytes(data)
    plain, compressed = urls
    original = files["model.safetensors"]
    for framework in ("np", "pt"):
        for url in urls:
            loaded = tensorcomp.load_file(url, framework)
            found = {
                name: np.asarray(x.view(torch.uint8) if framework == "pt" else x)
                for name, x in loaded.items()
            }
            assert equal(found, original)
    assert tensorcomp.inspect(compressed).ratio > 1.1
    assert not any(check.error for check in tensorcomp.verify(compressed, plain))
    rows = tensorcomp.compare(plain, compressed).tensors
    assert all(row.errors is not None and row.errors.max_error == 0 for row in rows)
    out = tensorcomp.decompress(compressed, tmp_path / "back.safetensors")
    assert out.read_bytes() == original
    made = tensorcomp.compress(plain, tmp_path / "m.tc.safetensors").path
    assert made.read_bytes() == files["model.tc.safetensors"]
    budget = tensorcomp.Budget(min_snr=20)
    planned = tensorcomp.plan(plain, budget=budget, effort="fast")
    smaller = tensorcomp.compress(plain, tmp_path / "s.tc.safetensors", plan=planned.plan)
    assert smaller.output_bytes < made.stat().st_size


def test_a_whole_file_is_fetched_in_few_requests(
    server: RangeServer, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is fetched once, but for small tensors, and one that equals another twice."""
    monkeypatch.setattr(remote_file, "BLOCK_BYTES", 1 << 20)
    for name, data in files.items():
        url = server.put(name, data)
        if name == "model.safetensors":
            tensorcomp.compress(url, tmp_path / "m.tc.safetensors")
        else:
            tensorcomp.verify(url)
        fetched = [span.removeprefix("bytes=").split("-") for span in server.ranges() if span]
        nbytes = sum(int(stop) + 1 - int(start) for start, stop in fetched)
        again = 2 * 16_000 * 256 if name == "model.safetensors" else 0
        assert nbytes < len(data) + again + (2 << 20)
        assert len(fetched) < (len(data) + again) / (1 << 20) + 12


FAULTS = {
    "500 twice": lambda number: 500 if number in (1, 2) else None,
    "cut twice": lambda number: CUT if number in (0, 2) else None,
    "slow once": lambda number: SLOW if number == 1 else None,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_that_pass(
    server: RangeServer, files: dict[str, bytes], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "slow once":
        monkeypatch.setattr(remote_file, "TIMEOUT", 0.5)
        monkeypatch.setattr(remote_file, "LEAST_SPEED", 1e9)
    url = server.put("m.tc.safetensors", files["model.tc.safetensors"])
    server.fault = FAULTS[fault]
    assert equal(tensorcomp.load_file(url), files["model.safetensors"])


EXPIRED = b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>word</Message></Error>"


@pytest.mark.parametrize(
    ("fault", "body", "error", "message", "requests"),
    [
        (500, b"", CheckpointError, "answers with status 500; 4 requests failed", 4),
        (403, EXPIRED, CheckpointError, "the credentials have expired", 1),
        (403, b"", CheckpointError, "access is denied", 1),
        (401, b"", CheckpointError, "there are no credentials", 1),
        (404, b"", MissingFileError, "there is no such file", 1),
        (WHOLE, b"", CheckpointError, "sends no ranges, or wrong ones; download it first", 1),
        (SHIFTED, b"", CheckpointError, "sends no ranges, or wrong ones; download it first", 1),
        (CUT, b"", CheckpointError, "breaks off .*; 4 requests failed", 4),
        (LONG, b"", CheckpointError, "breaks off .*; 4 requests failed", 4),
    ],
)
def test_faults_that_stay_are_one_line(
    server: RangeServer,
    files: dict[str, bytes],
    fault: int | str,
    body: bytes,
    error: type[TensorcompError],
    message: str,
    requests: int,
) -> None:
    url = server.put("m.tc.safetensors", files["model.tc.safetensors"])
    server.fault, server.body = lambda _number: fault, body
    with pytest.raises(error, match=message) as raised:
        tensorcomp.verify(f"{url.replace('//', '//user:word@')}?signature=word")
    assert "word" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(server.requests) == requests


def test_a_server_that_stalls_is_not_waited_for_long(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_file, "_STALL", 0.2)
    monkeypatch.setattr(store_errors, "PATIENCE", 0.1)
    url = server.put("m.tc.safetensors", bytes(1000))
    server.fault = lambda _number: SLOW
    with pytest.raises(CheckpointError, match=r"breaks off \(.*Timeout.*\); 1 request failed"):
        tensorcomp.inspect(url)


def test_a_server_that_goes_away_is_not_waited_for_by_each_tensor(
    server: RangeServer, files: dict[str, bytes]
) -> None:
    url = server.put("m.tc.safetensors", files["model.tc.safetensors"])
    with tensorcomp.safe_open(url) as file:
        server.fault = lambda _number: 500
        for name in ("embed", "layers.0.weight", "layers.1.weight"):
            with pytest.raises(CheckpointError, match="answers with status 500; 4 requests"):
                file.get_tensor(name)
    assert len(server.requests) == 1 + 4


def test_a_store_that_fails_is_no_damage(server: RangeServer, files: dict[str, bytes]) -> None:
    url = server.put("m.tc.safetensors", files["model.tc.safetensors"])
    server.fault = lambda number: 503 if number > 2 else None
    with pytest.raises(CheckpointError, match="answers with status 503; 4 requests failed"):
        tensorcomp.verify(url)


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_errors, "FIRST_WAIT", 0.01)
    with range_server() as gone:
        url = f"{gone.address}/m.safetensors"
    with pytest.raises(CheckpointError, match="the server cannot be reached"):
        tensorcomp.inspect(url)


def test_a_file_that_is_changed_while_it_is_read(
    server: RangeServer, files: dict[str, bytes]
) -> None:
    data = files["model.tc.safetensors"]
    url = server.put("m.tc.safetensors", data)
    with tensorcomp.safe_open(url) as file:
        server.put("m.tc.safetensors", data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(CheckpointError, match="was changed while it was read"):
            file.get_slice("embed")[5]
    memory = location("memory://test_changed/m.tc.safetensors")
    memory.write_bytes(data)
    opened = tensorcomp.safe_open(memory)
    memory.write_bytes(data)
    with pytest.raises(CheckpointError, match="was changed while it was read"), opened:
        pass


@pytest.mark.parametrize("length", [0, 5, 1000, 1 << 17, -1000])
def test_an_upload_that_was_cut_short(
    server: RangeServer, files: dict[str, bytes], length: int
) -> None:
    url = server.put("m.tc.safetensors", files["model.tc.safetensors"][:length])
    for read in (tensorcomp.load_file, tensorcomp.verify):
        with pytest.raises((CheckpointError, FormatError), match=r"m\.tc\.safetensors: "):
            read(url)


def test_what_cannot_be_read_by_ranges_is_copied_first(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spool"))
    (tmp_path / "spool").mkdir()
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.randn(300, 400)}, path)
    url = server.put("model.pt", path.read_bytes())
    assert detect_format(location(url)) == "torch"
    made = tensorcomp.compress(url, tmp_path / "m.tc.safetensors").path
    assert not any(check.error for check in tensorcomp.verify(made, url))
    assert not tensorcomp.compare(url, made).tensors[0].errors.max_error
    with open_checkpoint(url) as opened:
        assert [info.shape for info in opened.arrays] == [(300, 400)]
    del opened
    assert list((tmp_path / "spool").iterdir()) == []
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(CheckpointError, match=r"model\.pt: expected room .*spool, which is full"):
        tensorcomp.compress(url, tmp_path / "n.tc.safetensors")
    assert list((tmp_path / "spool").iterdir()) == []
    assert not (tmp_path / "n.tc.safetensors").exists()


def test_folders_with_their_other_files(files: dict[str, bytes], tmp_path: Path) -> None:
    folder = location("memory://test_folders/model")
    (folder / "a.safetensors").write_bytes(files["model.safetensors"])
    torch.save({"weight": torch.randn(300, 400)}, tmp_path / "b.pt")
    (folder / "sub/b.pt").write_bytes((tmp_path / "b.pt").read_bytes())
    (folder / "config.json").write_text("{}")
    result = tensorcomp.compress(folder, tmp_path / "model.tc")
    assert {file.as_posix() for file in result.files} == {"a.safetensors", "sub/b.pt"}
    assert (tmp_path / "model.tc/config.json").read_text() == "{}"
    for file in (tmp_path / "model.tc").rglob("*.*"):
        other = location("memory://test_folders/model.tc") / file.relative_to(tmp_path / "model.tc")
        other.write_bytes(file.read_bytes())
    compressed = "memory://test_folders/model.tc"
    assert tensorcomp.inspect(compressed).ratio == tensorcomp.inspect(tmp_path / "model.tc").ratio
    assert not any(check.error for check in tensorcomp.verify(compressed, folder))
    tensorcomp.decompress(compressed, tmp_path / "back")
    for file in ("a.safetensors", "sub/b.pt", "config.json"):
        assert (tmp_path / "back" / file).read_bytes() == (folder / file).read_bytes()
    with pytest.raises(CheckpointError, match="memory://test_folders/model: holds no"):
        tensorcomp.verify(folder)


def test_blocks_are_read_in_any_order(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(remote_file, "HEAD_BYTES", 1 << 8)
    data = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)
    remote = RemoteFile(location(server.put("data", data.tobytes())))
    assert remote.size == data.size
    random = np.random.default_rng(1)
    for ahead in (False, True):
        if ahead:
            remote.read_ahead([(5000, 5100), (90_000, 90_010), (10, 20)])
        for start in [*random.integers(0, data.size, 30), 0, 5000, 5050, 90_000, 99_999]:
            stop = int(min(start + random.integers(0, 9000), data.size))
            assert np.array_equal(remote.read(int(start), stop), data[start:stop])
    remote.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_was_forked_opens_again(
    server: RangeServer, files: dict[str, bytes]
) -> None:
    url = server.put("m.tc.safetensors", files["model.tc.safetensors"])
    with tensorcomp.safe_open(url) as file:
        ours, theirs = os.pipe()
        if os.fork() == 0:
            try:
                file.get_tensor("embed")
            except CheckpointError as error:
                os.write(theirs, str(error).encode())
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, encoding="utf-8") as told:
            assert told.read().endswith("was forked; open it again in this one")
