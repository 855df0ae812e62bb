"""Parts whose input and output are in an object store."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from object_store import ObjectStore
from sharded_models import contents, make_shards

import tensorcomp
from tensorcomp.errors import CheckpointError, VerificationError


@pytest.fixture
def model(tmp_path: Path, s3: ObjectStore) -> Path:
    """Return a model that is in the store as ``m``, too."""
    make_shards(tmp_path / "m")
    for name, data in contents(tmp_path / "m").items():
        s3.put(f"m/{name}", data)
    return tmp_path / "m"


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorcomp.container.job_folder._WAIT", 0.0)


def stored(s3: ObjectStore, prefix: str) -> dict[str, bytes]:
    return {key.removeprefix(prefix): s3.get(key) for key in s3.keys(prefix)}


def test_parts_of_a_store_are_what_one_process_writes(model: Path, s3: ObjectStore):
    serial = tensorcomp.compress(model)
    for number in (1, 0):
        if number == 0:
            with pytest.raises((VerificationError, CheckpointError), match="lacks"):
                tensorcomp.merge(s3.url("m"))
            with pytest.raises(CheckpointError):
                tensorcomp.inspect(s3.url("m.tc"))
        tensorcomp.compress(s3.url("m"), part=(number, 2))
    again = tensorcomp.compress(s3.url("m"), part="0/2")
    assert again.reused == len(again.files)
    merged = tensorcomp.merge(s3.url("m"))
    assert merged.summary.to_dict() == serial.summary.to_dict()
    assert stored(s3, "m.tc/") == contents(serial.path)
    assert stored(s3, "m.tc.partial/") == {}
    assert tensorcomp.merge(s3.url("m.tc")).output_bytes == serial.output_bytes
    with pytest.raises(CheckpointError, match="exists already"):
        tensorcomp.compress(s3.url("m"), part="0/2")


def test_a_local_folder_goes_to_a_store_by_an_executor(model: Path, s3: ObjectStore):
    serial = tensorcomp.compress(model)
    with ThreadPoolExecutor(2) as executor:
        tensorcomp.compress(model, s3.url("out.tc"), executor=executor)
    assert stored(s3, "out.tc/") == contents(serial.path)


def test_an_object_that_is_replaced_is_compressed_again(model: Path, s3: ObjectStore):
    tensorcomp.compress(s3.url("m"), part="0/1")
    s3.put("m/adapter0.safetensors", s3.get("m/adapter1.safetensors"))
    with pytest.raises(VerificationError, match=r"another source: 'adapter0\.safetensors'"):
        tensorcomp.merge(s3.url("m"))
    assert tensorcomp.compress(s3.url("m"), part="0/1").reused == 5
    tensorcomp.merge(s3.url("m"))


def test_a_worker_asks_for_its_shard_alone(model: Path, s3: ObjectStore):
    tensorcomp.compress(s3.url("m"), part="0/6")
    s3.requests.clear()
    (shard,) = tensorcomp.compress(s3.url("m"), part="1/6").files
    keys = {request.key for request in s3.requests if request.key.startswith("m/")}
    assert keys == {f"m/{shard}"}
    assert len(s3.requests) <= 25, Counter((r.method, r.key, r.status) for r in s3.requests)
