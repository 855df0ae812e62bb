"""The kernels' checked build: it sees mistakes, the fuzzer finds them, memory may run out."""

import subprocess
import sys
from pathlib import Path

import checked
import planted
import pytest
from fuzz import fuzz

HERE = Path(__file__).parent
CONTRACT = HERE.parent / "contract"
WHERE_KERNELS_RUN = "restores or shares or other or hostile"
why = checked.missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why is not None, reason=f"the checked build needs gcc: {why}"),
]


@pytest.fixture(scope="session")
def module() -> Path:
    return checked.build()


def run(module: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env=checked.environment(module) | {"TENSORCOMP_ONE_TREE_A_CODEC": "1"},
        cwd=checked.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_decoders_stay_in_bounds_on_damaged_payloads(module, request):
    """Under the contract of codecs; what the fuzzer does in less time only in long runs."""
    is_long = request.config.getoption("--planted") == "all"
    checks = f"{WHERE_KERNELS_RUN} or damaged" if is_long else WHERE_KERNELS_RUN
    tests = [
        str(CONTRACT / name) for name in ("test_codec_contract.py", "test_hostile_sections.py")
    ]
    options = ["-q", "-p", "checked_native", "-p", "no:cacheprovider", "-k", checks]
    done = run(module, "-m", "pytest", *options, *tests)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_wrong_sizes_do_no_harm(module):
    options = ["-q", "-p", "checked_native", "-p", "no:cacheprovider"]
    done = run(module, "-m", "pytest", *options, str(HERE / "test_kernel_arguments.py"))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_the_fuzzer_finds_nothing_and_reaches_every_decoder(module):
    outcome = fuzz(module, 10, seed=1)
    assert not outcome.fault, outcome
    done = run(module, "-c", LIST_HOSTILE)
    hostile, named = (line.split() for line in done.stdout.splitlines())
    assert set(named) <= set(hostile), "a decoder without a parameter that is marked ~ in table.h"
    assert {*hostile, "payloads", "files"} == set(outcome.counts)


LIST_HOSTILE = """
from checked import use_checked; use_checked()
import corpus
print(*corpus.hostile_kernels())
print(*[name for name in corpus.kernels() if "_decode" in name or "unpack" in name])
"""


@pytest.mark.parametrize("name", planted.BUGS)
def test_the_fuzzer_finds_planted_bugs(name, request):
    if name != next(iter(planted.BUGS)) and request.config.getoption("--planted") != "all":
        pytest.skip("one is enough in most runs; --planted all tries the others")
    report, _ = planted.find(name)
    assert "AddressSanitizer" in report, report


def test_the_checked_build_sees_one_byte_too_many(tmp_path, module):
    """Two bytes of room are there: only a copy of exactly its size shows the third is not."""
    code = (
        "from checked import use_checked; use_checked()\n"
        "import numpy as np\n"
        "from tensorcomp.kernels import native\n"
        "room = np.zeros(64, np.uint8)\n"
        "native.runlength_expand(np.ones(1, np.uint8), room[:1], room[:2])\n"
    )
    assert run(module, "-c", code).returncode == 0
    change = {("sparse.inc", "i64 at = 0, size = arg[1].size,"): "i64 at = 1, size = 2,"}
    done = run(checked.build(change, "address"), "-c", code)
    assert "heap-buffer-overflow" in done.stderr
    assert "0 bytes after 1-byte region" in done.stderr.replace("to the right of", "after")


def test_memory_that_runs_out_is_an_error(module):
    done = run(module, str(HERE / "exhaustion.py"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert int(done.stdout) > 100
