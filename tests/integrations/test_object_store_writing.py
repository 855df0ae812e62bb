"""Files and folders of a real S3 server, written: whole or not at all."""

import contextlib
import json

import numpy as np
import pytest
from object_store import BUCKET, CUT, DROP
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp.calibration.calibrate import calibrate
from tensorcomp.container.writer import CompressedWriter
from tensorcomp.errors import CheckpointError
from tensorcomp.io import s3_upload
from tensorcomp.io.files import atomic_file
from tensorcomp.io.locations import location
from tensorcomp.io.s3_upload import PartIsSent, S3Upload
from tensorcomp.planning.statistics import Statistics
from tensorcomp.progress import Progress
from tensorcomp.pruning.keep_indices import save_keep_indices
from tensorcomp.reports.save import save_report

MIB = 1 << 20
PART = 5 * MIB  # the least that S3 takes


@pytest.fixture(autouse=True)
def _small_and_soon(monkeypatch):
    """Send small parts, and repeat requests without long pauses."""
    monkeypatch.setattr(s3_upload, "PART_BYTES", PART)
    monkeypatch.setattr(s3_upload, "FIRST_WAIT", 0.01)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def content(nbytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8).tobytes()


def parts_sent(s3):
    return [int(r.query["partNumber"][0]) for r in s3.requests if "partNumber" in r.query]


def write_header_last(upload, data, header, block=MIB):
    """Write as `CompressedWriter` does."""
    upload.truncate(0)
    upload.seek(header)
    for start in range(header, len(data), block):
        upload.write(data[start : start + block])
    upload.seek(0)
    upload.write(data[:header])


@pytest.mark.parametrize(
    ("nbytes", "header", "block"),
    [
        (0, 0, MIB),
        (2000, 1000, MIB),
        (PART, 0, PART),
        (PART, 1000, 300_001),
        (PART + 1, PART, MIB),
        (2 * PART, PART + 5, 300_001),
        (3 * PART + 7, 1000, 3 * PART),
        (3 * PART + 7, 2 * PART + 1, PART),
    ],
)
def test_bytes_are_those_that_were_written(s3, nbytes, header, block):
    data = content(nbytes)
    with S3Upload(location(s3.url("x")), nbytes) as upload:
        write_header_last(upload, data, header, block)
        assert s3.keys() == []
        upload.complete(force=False)
    assert s3.get("x") == data
    assert s3.uploads() == []
    sent = parts_sent(s3)
    assert sorted(sent) == (list(range(1, -(-nbytes // PART) + 1)) if nbytes > PART else [])


def test_part_with_the_header_is_sent_in_the_end(s3):
    with S3Upload(location(s3.url("x")), 5 * PART) as upload:
        write_header_last(upload, content(5 * PART), 1000)
        assert {2, 3} <= set(parts_sent(s3)) <= {2, 3, 4, 5}
        upload.complete(force=False)
    assert set(parts_sent(s3)) == {1, 2, 3, 4, 5}


def test_parts_are_as_large_as_an_object_needs(s3):
    for nbytes, part in [(0, PART), (40 << 30, PART), (1 << 40, -(-(1 << 40) // 9000))]:
        assert S3Upload(location(s3.url("x")), nbytes)._size == part


def test_what_is_in_memory_can_be_read_and_changed(s3):
    data = content(PART - 10)
    with S3Upload(location(s3.url("x")), PART) as upload:
        upload.write(data)
        upload.seek(100)
        assert upload.read(50) == data[100:150]
        upload.seek(PART - 20)
        assert upload.read(50) == data[-10:]
        upload.truncate(200)
        upload.seek(200)
        upload.write(b"end")
        upload.complete(force=False)
    assert s3.get("x") == data[:200] + b"end"


def test_what_was_sent_can_be_neither_read_nor_changed(s3):
    upload = S3Upload(location(s3.url("x")), 0)
    upload.write(content(3 * PART))
    upload.seek(PART + 5)
    with pytest.raises(PartIsSent):
        upload.read(5)
    with pytest.raises(PartIsSent):
        upload.write(b"x")
    assert s3.uploads() == ["x"]
    upload.abort()
    assert (s3.keys(), s3.uploads()) == ([], [])


def test_small_file_is_one_request(s3):
    tensorcomp.save_file({"w": np.ones(3, np.float32)}, s3.url("x.tc.safetensors"))
    assert [r.method for r in s3.requests if r.method not in ("GET", "HEAD")] == ["PUT"]
    assert s3.get("x.tc.safetensors") == tensorcomp.save({"w": np.ones(3, np.float32)})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of a few parts."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("source") / "model.safetensors"
    tensors = {
        f"{n}.weight": random.standard_normal((1000, 1200), np.float32).astype(np.float16)
        for n in range(10)
    }
    save_file(tensors, path)
    return path


@pytest.fixture(scope="module")
def compressed(checkpoint):
    return tensorcomp.compress(checkpoint, threads=1).path


def test_lossless_compression_is_a_stream_of_the_same_bytes(s3, checkpoint, compressed):
    result = tensorcomp.compress(checkpoint, s3.url("a/b/x.tc.safetensors"), threads=2)
    assert s3.get("a/b/x.tc.safetensors") == compressed.read_bytes()
    assert str(result.path) == s3.url("a/b/x.tc.safetensors")
    assert result.output_bytes == compressed.stat().st_size
    assert len(parts_sent(s3)) == -(-compressed.stat().st_size // PART) > 3


def test_decompression_is_a_stream_of_the_same_bytes(s3, checkpoint, compressed):
    assert str(tensorcomp.decompress(compressed, s3.url("x.safetensors"))) == s3.url(
        "x.safetensors"
    )
    assert s3.get("x.safetensors") == checkpoint.read_bytes()
    assert len(parts_sent(s3)) > 3


def test_lossy_compression_is_uploaded_in_the_end(s3, checkpoint, tmp_path):
    budget = tensorcomp.Budget(target_ratio=1.9)
    local = tensorcomp.compress(checkpoint, tmp_path / "x.tc.safetensors", budget=budget, threads=1)

    class Watch(Progress):
        begun, done = [], 0

        def begin(self, tensors, nbytes):
            self.begun.append((tensors, nbytes))
            self.done = 0

        def advance(self, name, nbytes):
            self.done += nbytes

    watch, url = Watch(), s3.url("x.tc.safetensors")
    tensorcomp.compress(checkpoint, url, budget=budget, threads=1, progress=watch)
    assert s3.get("x.tc.safetensors") == local.path.read_bytes()
    assert len({r.query["uploadId"][0] for r in s3.requests if "partNumber" in r.query}) == 1
    assert watch.begun[-1] == (1, local.output_bytes)
    assert watch.done == local.output_bytes


def test_other_formats_are_restored_by_way_of_a_local_file(s3, tmp_path):
    np.savez(tmp_path / "x.npz", a=np.arange(5), b=np.ones((300, 40), np.float32))
    small = tensorcomp.compress(tmp_path / "x.npz").path
    tensorcomp.decompress(small, s3.url("x.npz"))
    assert s3.get("x.npz") == (tmp_path / "x.npz").read_bytes()


def test_header_without_room_begins_again_locally(s3, checkpoint, compressed, monkeypatch):
    url, finish, files = s3.url("x.tc.safetensors"), CompressedWriter.finish, []

    def without_room(self, manifest):
        files.append(self._file)
        self._start -= 1000  # as if less had been set aside
        return finish(self, manifest)

    monkeypatch.setattr(CompressedWriter, "finish", without_room)
    local = tensorcomp.compress(checkpoint, checkpoint.with_name("moved.tc.safetensors"))
    moved = local.path.read_bytes()
    tensorcomp.compress(checkpoint, url)
    assert s3.get("x.tc.safetensors") == moved
    assert s3.uploads() == []
    assert len(files) == 3  # one locally, and two for the store


@pytest.mark.parametrize("size", [10, 3 * PART])
def test_existing_object_is_kept_unless_forced(s3, size):
    url = s3.put("x", b"old")
    with pytest.raises(CheckpointError, match="exists already"):
        tensorcomp.compress(__file__, url)
    for force in (False, True):
        with contextlib.ExitStack() as stack:
            if not force:
                stack.enter_context(pytest.raises(CheckpointError, match="exists already"))
            file = stack.enter_context(atomic_file(location(url), force=force, nbytes=size))
            file.write(content(size))
    assert s3.get("x") == content(size)


@pytest.mark.parametrize("size", [10, 3 * PART])
@pytest.mark.parametrize("nbytes", [1, None])
def test_one_of_two_racing_writers_wins(s3, size, nbytes):
    path = location(s3.url("x"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(CheckpointError, match="x: exists already"))
        late = stack.enter_context(atomic_file(path, force=False, nbytes=nbytes))
        late.write(content(size, seed=1))
        with atomic_file(path, force=False, nbytes=nbytes) as early:
            early.write(content(size, seed=2))
    assert s3.get("x") == content(size, seed=2)
    assert s3.uploads() == []


def test_server_without_conditions_is_asked_without(s3):
    s3.fault = lambda request: 501 if "if-none-match" in request.headers else None
    for size in (10, 2 * PART):
        with atomic_file(location(s3.url(str(size))), force=False, nbytes=size) as file:
            file.write(content(size))
        assert s3.get(str(size)) == content(size)


def test_names_that_cannot_be_written(s3):
    s3.put("folder/x", b"1")
    with pytest.raises(CheckpointError, match="s3://bucket/folder: is a folder"):
        tensorcomp.save_file({}, s3.url("folder"))
    with pytest.raises(CheckpointError, match="there is no such bucket"):
        tensorcomp.save_file({}, "s3://another/x")
    with pytest.raises(CheckpointError, match="can be read only; give another place by out="):
        tensorcomp.save_file({}, "http://127.0.0.1:1/x.tc.safetensors")


@pytest.mark.parametrize("fault", [500, 503, DROP])
@pytest.mark.parametrize("size", [10, 4 * PART])
def test_server_that_fails_twice_is_asked_again(s3, fault, size):
    failed = []

    def fail_twice(request):
        if request.method in ("PUT", "POST") and failed.count(str(request.query)) < 2:
            failed.append(str(request.query))
            return fault
        return None

    s3.fault = fail_twice
    with atomic_file(location(s3.url("x")), force=True, nbytes=size) as file:
        file.write(content(size))
    assert len(failed) == (2 if size == 10 else 12)  # of four parts, beginning and end
    assert s3.get("x") == content(size)


@pytest.mark.parametrize("size", [10, 4 * PART])
def test_lost_answers_are_no_failures(s3, size):
    lost = []

    def lose(request):
        if request.method in ("PUT", "POST") and "uploads" not in request.query:
            lost.append(1)
            return CUT if len(lost) % 2 else None
        return None

    s3.fault = lose
    with atomic_file(location(s3.url("x")), force=False, nbytes=size) as file:
        file.write(content(size))
    assert s3.get("x") == content(size)
    assert s3.uploads() == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (500, "the server answers with status 500; 4 requests failed"),
        (DROP, "the server cannot be reached, or breaks off"),
        (403, "access is denied"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_server_that_goes_on_failing(s3, fault, message, method):
    s3.fault = lambda request: fault if request.method == method else None
    with (
        pytest.raises(CheckpointError, match=f"^s3://bucket/x: cannot be written: {message}"),
        atomic_file(location(s3.url("x")), force=False, nbytes=1) as file,
    ):
        file.write(content(4 * PART))
    assert (s3.keys(), s3.uploads()) == ([], [])


def test_error_in_the_block_leaves_nothing(s3):
    for nbytes in (1, None):
        with contextlib.ExitStack() as stack:
            stack.enter_context(pytest.raises(ZeroDivisionError))
            path = location(s3.url("x"))
            file = stack.enter_context(atomic_file(path, force=False, nbytes=nbytes))
            file.write(content(4 * PART))
            raise ZeroDivisionError
    assert (s3.keys(), s3.uploads()) == ([], [])


def contents(s3, prefix):
    return {key.removeprefix(prefix): s3.get(key) for key in s3.keys(prefix)}


def local_contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def written(s3):
    """Return the keys that were written or removed, in this order."""
    found = []
    for request in s3.requests:
        if request.method in ("PUT", "DELETE") or "uploadId" in request.query:
            found.append(f"-{request.key}" if request.method == "DELETE" else request.key)
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of two shards with an index, a link, and other files in a folder."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("source") / "m"
    (path / "more").mkdir(parents=True)
    names, weights = [f"model-{n:05}-of-00002.safetensors" for n in (1, 2)], {}
    for name in names:
        tensors = {f"{name[6:11]}.w": random.standard_normal((40, 256), np.float32)}
        save_file(tensors, path / name)
        weights |= dict.fromkeys(tensors, name)
    index = json.dumps({"metadata": {}, "weight_map": weights})
    (path / "model.safetensors.index.json").write_text(index)
    (path / "config.json").write_text("{}")
    (path / "more" / "readme.txt").write_text("words\n")
    (path / "more" / "same.safetensors").symlink_to(path / names[0])
    return path


@pytest.mark.parametrize("keep_names", [False, True])
@pytest.mark.parametrize(
    "budget", [None, tensorcomp.Budget(min_snr=30), tensorcomp.Budget(target_ratio=3)]
)
def test_folder_is_that_which_is_written_locally(s3, folder, tmp_path, budget, keep_names):
    options = {"budget": budget, "threads": 1, "keep_names": keep_names}
    local = tensorcomp.compress(folder, tmp_path / "m.tc", **options).path
    result = tensorcomp.compress(folder, s3.url("a/m.tc"), **options)
    assert contents(s3, "a/m.tc/") == local_contents(local)
    assert str(result.path) == s3.url("a/m.tc")
    order = [key.replace("a/m.tc/", "") for key in written(s3)]
    kinds = ["index" in k or "shard" * k.endswith(".safetensors") or k for k in order]
    assert order[0] == ".tensorcomp-part"
    assert order[-1] == "-.tensorcomp-part"
    assert set(order[1:3]) == {"config.json", "more/readme.txt"}
    assert kinds[3:-1] == ["shard"] * 3 + [True] * (1 if keep_names else 2)


def test_folder_is_restored_into_a_store(s3, folder, tmp_path):
    small = tensorcomp.compress(folder, tmp_path / "m.tc").path
    tensorcomp.decompress(small, s3.url("back"))
    assert contents(s3, "back/") == local_contents(folder)


def test_existing_folder_is_kept_unless_forced(s3, folder):
    url = s3.url("m.tc")
    s3.put("m.tc/config.json", b"old")
    s3.put("m.tc/model.safetensors.index.tc.json", b"old")
    with pytest.raises(CheckpointError, match="exists already; force=True replaces it"):
        tensorcomp.compress(folder, url)
    s3.put("m.tc/strange", b"")
    with pytest.raises(CheckpointError, match="holds 'strange', which the output does not"):
        tensorcomp.compress(folder, url, force=True)
    s3.client.delete_object(Bucket=BUCKET, Key="m.tc/strange")
    s3.requests.clear()
    tensorcomp.compress(folder, url, force=True)
    assert s3.get("m.tc/config.json") == b"{}"
    assert written(s3)[:2] == ["m.tc/.tensorcomp-part", "-m.tc/model.safetensors.index.tc.json"]
    s3.put("file", b"")
    with pytest.raises(CheckpointError, match="is not a folder"):
        tensorcomp.compress(folder, s3.url("file"), force=True)


def test_unfinished_folder_is_told_of_and_written_anew(s3, folder, tmp_path):
    second = "model-00002"
    s3.fault = lambda r: 403 if r.method == "PUT" and second in r.key else None
    with pytest.raises(CheckpointError, match="access is denied"):
        tensorcomp.compress(folder, s3.url("m.tc"))
    s3.fault = None
    assert not any("index" in key or second in key for key in s3.keys("m.tc/"))
    with pytest.raises(CheckpointError, match="is unfinished: a run was stopped"):
        tensorcomp.inspect(s3.url("m.tc"))
    tensorcomp.compress(folder, s3.url("m.tc"))
    local = tensorcomp.compress(folder, tmp_path / "m.tc").path
    assert contents(s3, "m.tc/") == local_contents(local)


def test_files_of_a_store_are_not_replaced(s3, checkpoint):
    url = s3.put("x.safetensors", checkpoint.read_bytes())
    with pytest.raises(CheckpointError, match="expected local files to replace"):
        tensorcomp.compress(url, replace=True)
    assert s3.keys() == ["x.safetensors"]


def test_all_that_writes_a_file_writes_objects(s3, checkpoint):
    statistics = Statistics(
        {"second_moment": {"w": np.eye(3, dtype=np.float32)}}, positions={"w": 9}
    )
    statistics.save(s3.url("statistics.safetensors"))
    back = Statistics.load(s3.url("statistics.safetensors"))
    np.testing.assert_array_equal(back.arrays["second_moment"]["w"], np.eye(3))
    save_keep_indices({}, s3.url("kept.json"))
    assert s3.get("kept.json") == b"{}\n"
    save_report(tensorcomp.inspect(checkpoint), s3.url("card.md"))
    assert s3.get("card.md").startswith(b"#")


def test_calibration_writes_an_object(s3):
    torch = pytest.importorskip("torch")
    model, data = (
        torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2)),
        torch.randn(9, 8),
    )
    url = s3.url("statistics.safetensors")
    calibrate(model, [data], statistics=("second_moment",), memory=1, out=url)
    assert s3.keys() == ["statistics.safetensors"]


def test_from_store_to_store(s3, folder, tmp_path):
    for name, data in local_contents(folder).items():
        s3.put(f"m/{name}", data)
    small = tensorcomp.compress(folder, tmp_path / "m.tc", threads=1).path
    names = set(local_contents(small)) - {"more/same.tc.safetensors"}
    s3.client.delete_object(Bucket=BUCKET, Key="m/more/same.safetensors")  # stores have no links
    tensorcomp.compress(s3.url("m"), threads=1)
    found = contents(s3, "m.tc/")
    assert found == {name: (small / name).read_bytes() for name in names}
    tensorcomp.decompress(s3.url("m.tc"), s3.url("back"), threads=1)
    assert contents(s3, "back/") == contents(s3, "m/")
    with pytest.raises(CheckpointError, match="lies in the input folder"):
        tensorcomp.compress(s3.url("m"), s3.url("m/x"), threads=1)
    tensorcomp.compress(s3.url("m/model-00001-of-00002.safetensors"), threads=1)
    shard = "model-00001-of-00002.tc.safetensors"
    assert s3.get(f"m/{shard}") == (small / shard).read_bytes()
    file = s3.url("m/model-00001-of-00002.safetensors")
    with pytest.raises(CheckpointError, match="would replace the input"):
        tensorcomp.compress(file, file, threads=1)
