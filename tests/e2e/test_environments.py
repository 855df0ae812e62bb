"""Names that are hostile, surroundings that lack something: every verb works, and leaves nothing.

`python -m benchmarks.hardening.environments` runs many more.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp_cli.main import main

NAMES = (
    *("layers.0.mlp.weight", "new\nline.weight", "red\x1b[31m", "c1\x9b31m", "bidi\u202etfel"),
    *("isolate\u2066x", "zero\u200bwidth", "line\u2028sep", "nul\0", "-o", "CON", "../up", "日本"),
)
RUN = "import sys; from tensorcomp_cli.entry import run; run()"
VERBS = (
    *("compress model -o out", "decompress packed -o out", "plan model --min-snr 30 -o out"),
    *("inspect packed", "verify packed --against model", "compare model packed", "sparsity model"),
)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkpoint, and the same compressed, in a current folder of their own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    random = np.random.default_rng(0)
    tensors = {name: random.normal(size=(64, 80)).astype(np.float32) for name in NAMES}
    tensors["zeros\u202e.weight"] = np.zeros((64, 80), np.float32)
    save_file(tensors, "model")
    tensorcomp.compress("model", "packed")
    return folder


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("form", ["", "--markdown", "--csv", "--json", "-vv"])
@pytest.mark.parametrize("line", VERBS)
def test_names_move_no_cursor(capsys, line, form):
    if main([*line.split(), *form.split()]) == 2:
        assert "No such option" in capsys.readouterr().err
        return
    printed = capsys.readouterr()
    lines = [*printed.out.split("\n"), *printed.err.split("\n")]
    assert [text for text in lines if not text.isprintable()] == []
    if form == "--json" and not line.startswith("sparsity"):
        tensors = json.loads(printed.out)["tensors"]
        names = [tensor if isinstance(tensor, str) else tensor["name"] for tensor in tensors]
        assert set(NAMES) <= set(names)


@pytest.mark.parametrize(
    "name",
    ["new\nline", "bidi\u202etfel", "bad\udcff", "CON", "aux.safetensors", "dot.", "x" * 255],
)
def test_files_may_have_any_name(inputs, capsys, name):
    Path("model").rename(name)
    assert main(["compress", "-o", "out", "--", name]) == 0
    assert main(["decompress", "out", f"--output={name}", "--force"]) == 0
    printed = capsys.readouterr()
    assert all(line.isprintable() for line in printed.out.split("\n"))
    assert {path.name for path in inputs.iterdir()} == {name, "out", "packed"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    ("shell", "status"),
    [
        ('unset HOME TMPDIR; exec "$@"', 0),
        ('exec env -i "$@"', 0),
        ('TMPDIR=/nowhere HOME=/proc LC_ALL=POSIX PYTHONIOENCODING=ascii exec "$@"', 0),
        ('PYTHONOPTIMIZE=2 PYTHONWARNINGS=error COLUMNS=1 exec "$@"', 0),
        ('exec "$@" <&- >&- 2>&-', 0),
        ('exec "$@" >/dev/full', 2),
        ('ulimit -f 1; exec "$@"', 2),
        ('umask 077; exec "$@"', 0),
        ('umask 000; exec "$@"', 0),
    ],
)
def test_what_surrounds_a_run_may_lack_anything(inputs, shell, status):
    code = f"import sys; sys.path[:0] = {sys.path!r}; {RUN}"
    command = ["sh", "-c", shell, "sh", sys.executable, "-c", code]
    done = subprocess.run(
        [*command, "compress", "model", "-o", "out"], capture_output=True, check=False, timeout=100
    )
    assert done.returncode == status, done.stderr
    assert len(done.stderr.splitlines()) == (1 if status else 0)
    left = {path.name for path in inputs.iterdir()} - {"model", "packed"}
    if shell.startswith("ulimit"):
        assert left == set()
        return
    assert left == {"out"}
    os.umask(mask := os.umask(0))
    if shell.startswith("umask"):
        mask = int(shell[6:9], 8)
    assert Path("out").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
@pytest.mark.parametrize("source", ["model", "several"])
def test_a_loop_of_links_is_explained_in_a_line(inputs, capsys, source):
    (inputs / "several").mkdir()
    (inputs / "several" / "a.safetensors").write_bytes(Path("model").read_bytes())
    Path("loop").symlink_to("loop")
    for arguments in (
        ["compress", source, "-o", "loop"],
        ["compress", "loop"],
        ["inspect", "loop"],
    ):
        status, line = main(arguments), capsys.readouterr().err
        assert status in (0, 2)
        assert len(line.splitlines()) == (1 if status else 0)
        assert "unexpected" not in line
