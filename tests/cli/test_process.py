"""The command as a process: imports, help, signals, pipes, terminals, errors nobody foresaw."""

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import tensorcomp
import tensorcomp_cli.main
from tensorcomp.api import compress as files
from tensorcomp_cli.main import VERBS, app

RUN = "import sys; from tensorcomp_cli.entry import run; run()"

# Lets a verb run to its end, then tells on stdout what it has imported of what the test forbids.
IMPORTS = """
import os, sys
before = set(sys.modules)  # coverage reads its settings by tomllib
from tensorcomp_cli.entry import run
forbidden = set(sys.argv.pop(1).split())
def end(status):
    print("imported:", *sorted(forbidden & set(sys.modules) - before), flush=True)
    exit(status)
exit, os._exit = os._exit, end
run()
end(0)
"""


@pytest.mark.parametrize("verb", [None, "compress", "decompress", "plan", "inspect", "verify"])
def test_help_has_an_example(verb):
    arguments = [verb] if verb else []
    done = CliRunner().invoke(tensorcomp_cli.main.app, [*arguments, "--help"])
    assert done.exit_code == 0
    assert f"tensorcomp {verb or 'compress'} model." in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_version():
    done = CliRunner().invoke(tensorcomp_cli.main.app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"tensorcomp {tensorcomp.__version__}\n")


@pytest.mark.parametrize(
    ("what", "forbidden"),
    [
        ("version", "click rich numpy tensorcomp_cli.main"),
        ("help", "rich numpy tensorcomp_cli.compress"),
        ("verb help", "rich numpy"),
        ("raw", "rich torch tensorcomp.kernels"),
        ("compressed", "rich torch tensorcomp.kernels"),
        ("folder", "rich torch tensorcomp.kernels"),
        ("compress", "rich torch tomllib ml_dtypes tensorcomp.selection.scores"),
    ],
)
def test_imports(python, compressed, model, folder, what, forbidden):
    arguments = {
        "version": ["--version"],
        "help": ["--help"],
        "verb help": ["compress", "--help"],
        "raw": ["inspect", model],
        "compressed": ["inspect", compressed, "--json"],
        "folder": ["inspect", folder],
        "compress": ["compress", model, "--force"],
    }[what]
    done = python(IMPORTS, forbidden, *arguments)
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "imported:"


def test_the_list_of_verbs_has_the_first_sentence_of_each(call):
    context = click.Context(app)
    for name, text in VERBS.items():
        verb = app.get_command(context, name)
        assert verb.name == name
        assert inspect.cleandoc(verb.help).split("\n\n")[0].replace("\n", " ") == text


def test_console_script_is_quiet_where_stderr_is_no_terminal(model):
    command = [Path(sys.executable).with_name("tensorcomp"), "compress", model, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_a_bar_is_shown_where_stderr_is_a_terminal(on_terminal, model):
    text = on_terminal("compress", model)
    assert "compressing" in text
    assert "6/6 tensors" in text


# Stops before the rename that makes the output appear, and says so. The default handler of SIGINT
# is set again, since a shell has its background jobs ignore it. It sleeps in short pieces: a signal
# that comes just before a sleep begins is handled when that ends.
PAUSED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
def fsync(number):
    print("ready", flush=True)
    for _ in range(600):
        time.sleep(0.1)
os.fsync = fsync
from tensorcomp_cli.main import run
run()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_signal_leaves_the_destination_as_it_was(model, folder, tmp_path, number, kind, existing):
    source = model if kind == "file" else folder
    out = tmp_path / "out"
    if existing and kind == "file":
        out.write_bytes(b"precious")
    elif existing:
        out.mkdir()
        (out / "config.json").touch()
    before = sorted(tmp_path.rglob("*"))
    command = [sys.executable, "-c", PAUSED, "compress", source, "-o", out, "--force"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert stderr.splitlines()[-1] == f"tensorcomp: stopped by {number.name}"
    assert "Traceback" not in stderr
    assert sorted(tmp_path.rglob("*")) == before
    if existing and kind == "file":
        assert out.read_bytes() == b"precious"


def test_a_reader_that_goes_away_is_no_error(compressed):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", RUN, "inspect", compressed]
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_stream_that_is_full(compressed):
    command = [sys.executable, "-c", RUN, "inspect", compressed]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "tensorcomp: standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (MemoryError(), 2, "not enough memory"),
        (OSError(5, "Input/output error", "a.safetensors"), 2, "a.safetensors: Input/output error"),
        (ZeroDivisionError("two\nlines"), 2, "unexpected ZeroDivisionError: two lines"),
    ],
)
def test_whatever_is_raised_becomes_one_line(call, model, monkeypatch, error, status, words):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(files, "compress", fail)
    done = call("compress", model)
    assert (done.status, done.stdout) == (status, "")
    assert words in done.line


def test_debug_prints_the_traceback_too(call, tmp_path):
    done = call("--debug", "compress", tmp_path / "missing.safetensors")
    assert done.status == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tensorcomp: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_program_starts_gives_one_line(model, tmp_path, number):
    # Sent from within the import of the verbs, as a hasty Ctrl-C is.
    code = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Sends:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Sends())
from tensorcomp_cli.entry import run
run()
"""
    out = tmp_path / "out"
    command = [sys.executable, "-c", code, "compress", model, "-o", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number
    assert done.stderr == f"tensorcomp: stopped by {number.name}\n"
    assert not out.exists()


def test_a_signal_that_a_callback_swallows_ends_the_program_all_the_same(monkeypatch, capsys):
    class Dying:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)

    def verb(*_, **__):
        Dying()
        return 0

    monkeypatch.setattr(tensorcomp_cli.main, "app", Verb(verb))
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    assert tensorcomp_cli.main.main([]) == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in capsys.readouterr().err


class Verb:
    def __init__(self, main):
        self.main = main
