import json
import os
from pathlib import Path

import pytest

VERBS = {
    "compress": ("model", "--min-snr", "20", "-o", "small.tc.safetensors"),
    "plan": ("model", "--min-snr", "20"),
    "inspect": ("model",),
    "compare": ("model", "model"),
    "bench": ("model", "--codec", "affine(4, 64)"),
    "sparsity": ("model", "--all"),
    "gradients estimate": ("--parameters", "1e5", "--world=2", "--bandwidth", "1gbit"),
}


@pytest.fixture
def run(call, model, tmp_path, monkeypatch):
    """Return a function that runs a verb with further options."""
    monkeypatch.chdir(tmp_path)

    def verb(name: str, *options: object):
        words = [str(model.name) if word == "model" else word for word in VERBS[name]]
        return call(*name.split(), *words, *options)

    return verb


@pytest.fixture
def model(tmp_path: Path) -> Path:
    import numpy as np
    from safetensors.numpy import save_file

    random = np.random.default_rng(0)
    names = [f"layers.{n}.{name}.weight" for n in range(3) for name in ("q_proj", "up_proj")]
    path = tmp_path / "model.safetensors"
    save_file({name: random.standard_normal((64, 80)).astype(np.float32) for name in names}, path)
    return path


@pytest.mark.parametrize(
    "verb", [pytest.param(v, marks=[pytest.mark.slow] * (v == "bench")) for v in VERBS]
)
def test_every_verb_has_reports(run, verb):
    done = run(verb, "--report", "page.html")
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "report: page.html"
    page = Path("page.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert f"<code>tensorcomp {verb} " in page
    assert json.loads(run(verb, "--json", "--force", "--report", "card.md").stdout)
    card = Path("card.md").read_text("utf-8")
    assert card.startswith("## ")
    assert f"tensorcomp {verb} " in card
    assert "| --report |" not in card
    assert sorted(path.name for path in Path().iterdir() if "report" in path.name) == []


def test_settings_are_those_given(run):
    first, second = "layers.0.q_proj.weight", "layers.1.q_proj.weight"
    run(
        "compress",
        "--report",
        "card.md",
        "--threads",
        "1",
        "--codec",
        f"{first}=raw",
        f"--codec={second}=raw",
    )
    lines = Path("card.md").read_text("utf-8").splitlines()
    for line in (
        "| --min-snr | 20.0 |",
        "| --threads | 1 |",
        f"| --codec | {first}=raw, {second}=raw |",
    ):
        assert line in lines
    assert not any(line.startswith("| --effort") for line in lines)


def test_an_existing_report_is_kept_and_nothing_is_run(run):
    Path("page.html").write_text("precious")
    for verb in VERBS:
        done = run(verb, "--report", "page.html")
        assert (done.status, done.stdout) == (2, "")
        assert done.line.endswith(
            "page.html: exists already; --force replaces it, --report names another"
        )
    assert Path("page.html").read_text() == "precious"
    assert not Path("small.tc.safetensors").exists()
    assert run("plan", "--report", "page.html", "--force").status == 0
    assert Path("page.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("page.pdf", "page.pdf: expected a name that ends in .html or .md"),
        ("page", "page: expected a name that ends in .html or .md"),
        ("none/page.html", "there is no folder none"),
        ("folder.html", "folder.html: is a folder; give another name by --report"),
        ("small.md", "small.md is out, too; give --report another name"),
        ("", "the path is empty"),
    ],
)
def test_where_no_report_can_be(run, path, words):
    Path("folder.html").mkdir()
    options = ["-o", "small.md"] if path == "small.md" else []
    done = run("compress", *options, "--report", path)
    assert (done.status, done.stdout) == (2, "")
    assert words in done.line
    assert not Path("small.tc.safetensors").exists()


def test_an_input_is_never_replaced(run, model):
    model.rename("model.html")
    before = Path("model.html").read_bytes()
    for path in ("model.html", "./model.html"):
        done = run("inspect", "--report", path, "--force")
        assert done.status == 2
    assert Path("model.html").read_bytes() == before


def test_a_full_disk_loses_the_report_alone(run, monkeypatch):
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", full)
    done = run("inspect", "--report", "page.html")
    monkeypatch.setattr(os, "fsync", fsync)
    assert done.status == 2
    assert "layers.0.q_proj.weight" in done.stdout
    assert done.line == (
        "tensorcomp: page.html: cannot be written: the disk is full; free some space or choose "
        "another folder"
    )
    assert sorted(path.name for path in Path().iterdir()) == ["model.safetensors"]


def test_what_cannot_be_compared_is_reported(run, call, model):
    import numpy as np
    from safetensors.numpy import save_file

    save_file({"layers.0.q_proj.weight": np.zeros((64, 80), np.float32)}, "other.safetensors")
    done = call("compare", model, "other.safetensors", "--report", "page.html")
    assert done.status == 1
    assert "only in a" in Path("page.html").read_text("utf-8")


def test_a_failing_verb_leaves_no_report(run, call):
    done = call("inspect", "absent.safetensors", "--report", "page.html")
    assert done.status == 2
    assert sorted(path.name for path in Path().iterdir()) == ["model.safetensors"]


def test_a_report_inside_the_folder_is_not_part_of_it(call, model, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    model.rename(folder / "model.safetensors")
    done = call("compress", folder, "--report", folder / "page.html")
    assert done.status == 0
    names = {path.name for path in (tmp_path / "folder.tc").iterdir()}
    assert "page.html" in {path.name for path in folder.iterdir()}
    assert not [name for name in names if "page.html" in name]


def test_no_secret_of_a_url_is_printed_or_saved(call, model, tmp_path):
    pytest.importorskip("aiohttp")
    from range_server import range_server

    with range_server() as server:
        url = server.put("model.safetensors", model.read_bytes())
        signed = url.replace("//", "//user:s3cret@") + "?signature=s3cret"
        done = call("inspect", signed, "-vv", "--report", tmp_path / "r.html")
        text = done.stdout + done.stderr + (tmp_path / "r.html").read_text("utf-8")
        assert url in text
        server.fault = lambda _number: 404
        text += call("--debug", "inspect", signed).stderr
    assert "Traceback" in text
    assert "s3cret" not in text
