"""Writing to a real S3 server, stopped: by signals, full disks, or bounds of memory."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorcomp

MIB = 1 << 20


def make_checkpoint(path, tensors):
    """Write float16 tensors of 8 MB each, compressed to about 7."""
    random = np.random.default_rng(0)
    base = random.standard_normal(4_000_000, np.float32).astype(np.float16)
    save_file({f"{n:02}.w": np.roll(base, n) for n in range(tensors)}, path)
    return path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("source") / "model.safetensors", 6)


def start(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "tensorcomp", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def wait_for(condition, process):
    for _ in range(600):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("nothing happened")


def sent(s3):
    return sum("partNumber" in request.query for request in s3.requests)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_stopped_run_leaves_no_object(s3, checkpoint, number):
    s3.delay = 0.3
    process = start("compress", checkpoint, "-o", s3.url("x.tc.safetensors"), "--threads", 1)
    wait_for(lambda: sent(s3) > 0, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert s3.keys() == []
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert errors == f"tensorcomp: stopped by {number.name}\n"
        assert s3.uploads() == []
    assert tensorcomp.compress(checkpoint, s3.url("x.tc.safetensors")).output_bytes > 0
    assert s3.keys() == ["x.tc.safetensors"]


def test_killed_folder_is_written_anew(s3, tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    make_checkpoint(folder / "a.safetensors", 2)
    make_checkpoint(folder / "b.safetensors", 7)
    s3.delay = 0.1
    arguments = ("compress", folder, "-o", s3.url("m.tc"), "--threads", 1)
    process = start(*arguments)
    wait_for(lambda: s3.keys("m.tc/a") and s3.uploads(), process)
    process.kill()
    process.communicate()
    assert s3.keys() == ["m.tc/.tensorcomp-part", "m.tc/a.tc.safetensors"]
    _, errors = (told := start("inspect", s3.url("m.tc"))).communicate(timeout=60)
    assert (told.returncode, "is unfinished" in errors, errors.count("\n")) == (2, True, 1)
    _, errors = (again := start(*arguments)).communicate(timeout=120)
    assert again.returncode == 0, errors
    assert s3.keys() == ["m.tc/a.tc.safetensors", "m.tc/b.tc.safetensors"]


@pytest.mark.slow
def test_at_most_64_megabytes_are_held(s3, tmp_path):
    path = make_checkpoint(tmp_path / "model.safetensors", 24)
    script = (
        "import resource, sys, tensorcomp\n"
        "from tensorcomp.io.locations import location\n"
        "location(sys.argv[2]).exists()\n"  # which imports the store's client
        "tensorcomp.compress(sys.argv[1], sys.argv[3] + '0', threads=1)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "tensorcomp.compress(sys.argv[1], sys.argv[2], threads=1)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    url, local = s3.url("x.tc.safetensors"), str(tmp_path / "x")
    run = subprocess.run(
        [sys.executable, "-c", script, path, url, local], check=True, capture_output=True
    )
    assert int(run.stdout) * 1024 < 64_000_000
    assert s3.get("x.tc.safetensors") == (tmp_path / "x0").read_bytes()
    assert sent(s3) > 15


def test_full_disk_is_told_of_in_one_line(s3, checkpoint, tmp_path):
    limit = (10 * MIB, resource.RLIM_INFINITY)
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorcomp", "compress", checkpoint, "--min-snr", "60", "-o",
         s3.url("x.tc.safetensors")],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )  # fmt: skip
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert f"the disk is full: {tmp_path} has" in errors
    assert "set TMPDIR to a folder with room" in errors
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    assert (s3.keys(), s3.uploads()) == ([], [])


def test_command_line_writes_plans_and_restored_files(s3, checkpoint, tmp_path):
    def run(*arguments):
        process = start(*arguments)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return output

    plan, small = s3.url("plan.json"), s3.url("x.tc.safetensors")
    run("plan", checkpoint, "--min-snr", 30, "-o", plan)
    assert b'"tensors"' in s3.get("plan.json")
    assert s3.url("x.tc.safetensors") in run("compress", checkpoint, "-o", small)
    (tmp_path / "x.tc.safetensors").write_bytes(s3.get("x.tc.safetensors"))
    run("decompress", tmp_path / "x.tc.safetensors", "-o", s3.url("back.safetensors"))
    assert s3.get("back.safetensors") == checkpoint.read_bytes()
