"""Every example in README.md, in docs/ and in docstrings runs as it is written.

A page's ``python`` blocks share one namespace and a new folder that holds ``model.safetensors``;
where they begin with ``>>>``, their output is compared. A block with a title is written to that
file. ``console`` and ``bash`` blocks are run (see `console`), ``json`` and ``toml`` parsed. What a
reader need not see stands in ``<!--- invisible-code-block: python`` comments; what needs a network
follows ``<!--- skip: next -->``. `--regen-docs` writes the outputs of commands anew.
"""

import doctest
import importlib
import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from console import ROOT, Console
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

import tensorcomp

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODEL = ROOT / "examples" / "tiny_lm" / "model.safetensors"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [
    path
    for folder in ("tensorcomp", "cli")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]
LANGUAGES = {"python", "console", "bash", "json", "toml", "text", "yaml"}
_FENCE = re.compile(r"^ *```+([^`\n]*)$\n.*?^ *```+ *$", re.MULTILINE | re.DOTALL)
_TITLED = re.compile(r'(\w+) title="([\w./-]+)"')

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the pages' commands are bash's")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder with a checkpoint, ``model.safetensors``."""
    shutil.copy(MODEL, tmp_path / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run(page, folder, request):
    console = Console(folder, regenerate=request.config.getoption("--regen-docs", default=False))
    languages = {found[1] for found in _FENCE.finditer(page.read_text("utf-8"))}
    for found in filter(None, map(titled, languages)):  # other tests' modules have such names too
        sys.modules.pop(Path(found[2]).stem, None)
    before = set(sys.modules)
    parsers = [
        SkipParser(),
        PythonCodeBlockParser(doctest_optionflags=FLAGS),
        CodeBlockParser("console", console),
        CodeBlockParser("bash", Script(console)),
        CodeBlockParser("json", lambda example: json.loads(example.parsed) and None),
        CodeBlockParser("toml", lambda example: tomllib.loads(example.parsed) and None),
        *(
            CodeBlockParser(found[0], Written(folder / found[2]))
            for found in map(titled, languages)
            if found
        ),
    ]
    try:
        for example in Sybil(parsers).parse(page):
            example.evaluate()
    finally:
        for module in set(sys.modules) - before:  # a page's own files have other pages' names
            if str(folder) in str(getattr(sys.modules[module], "__file__", "")):
                del sys.modules[module]
    if console.changes:
        console.rewrite(page)


def titled(language: str) -> re.Match[str] | None:
    return _TITLED.fullmatch(language)


class Script:
    """Run a block as one script."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __call__(self, example: Example) -> str | None:
        status, output = self.console.run(str(example.parsed))
        return "\n".join([str(example.parsed), *output]) if status else None


class Written:
    """Write a block to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, example: Example) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(str(example.parsed), "utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_have_a_language(page):
    for found in _FENCE.finditer(page.read_text("utf-8")):
        assert found[1].partition(" ")[0] in LANGUAGES, found[0][:80]


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_docstrings_run(source):
    assert "+SKIP" not in source.read_text("utf-8")
    parts = source.relative_to(ROOT).with_suffix("").parts
    home = "tensorcomp_cli" if parts[0] == "cli" else parts[0]
    name = ".".join([home, *parts[1:]]).removesuffix(".__init__")
    tensorcomp.compress("model.safetensors")
    failed, attempted = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert attempted
    assert not failed


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
        assert (ROOT / link).exists(), link


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
