"""MkDocs hook: write the reference of codecs, scores and public names from the code."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tensorcomp.codecs.registry import own_codecs
from tensorcomp.selection.scores import SCORES

ROOT = Path(__file__).parent.parent
FAMILIES = {
    "entropy": "Integers, indices and bytes",
    "floats": "Floats",
    "quantize": "Quantizers and codebooks",
    "sparse": "Sparse arrays",
    "lowrank": "Factors and rotations",
}

_NAMES = re.compile(r"^<!-- names of ([\w.]+) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"reference/codecs.md": codecs_page(), "reference/scores.md": scores_page()}
    for name in ("CONTRIBUTING", "CHANGELOG"):
        text = (ROOT / f"{name}.md").read_text("utf-8")
        pages[f"{name.lower()}.md"] = text.replace("](docs/", "](")
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the documentation of a package's public names where a page asks for it."""
    return _NAMES.sub(lambda found: public_names(found[1]), markdown)


def public_names(package: str) -> str:
    """Return directives for the names in a package's ``__all__``: functions, classes, errors."""
    home = importlib.import_module(package)

    def order(name: str) -> tuple[bool, bool, str]:
        return name.endswith("Error"), not name.islower(), name

    def path(name: str) -> str:
        module = f"{package}.{name}"
        hidden = importlib.util.find_spec(module) and not inspect.ismodule(getattr(home, name))
        return f"{module}.{name}" if hidden else module  # by a function of its module's name

    names = sorted(home.__all__, key=order)
    return "\n\n".join(f"::: {path(name)}" for name in names)


def codecs_page() -> str:
    """Return the page of all codecs: a table and a section for each family."""
    codecs = own_codecs()
    lines = [
        "# Codecs",
        "A *transform* turns an array into named parts (arrays), a *serializer* an array into "
        "bytes, a *filter* bytes into fewer bytes. A tree of them codes a tensor, for example "
        "`sparse(mask=gaps, values=kmeans(16, codes=huffman))`; `tensorcomp.parse_tree` reads "
        "such a text. Write your own codec: [guide](../how-to/own-codec.md).",
    ]
    for family, title in FAMILIES.items():
        found = {name: codec for name, codec in codecs.items() if f".{family}." in codec.__module__}
        rows = [
            (f"[`{name}`](#{_anchor(codec)})", _kind(codec), _loss(codec), _first_line(codec))
            for name, codec in found.items()
        ]
        lines += [f"## {title}", _table(("codec", "kind", "loss", "what it does"), rows)]
        lines += [_section(codec, name) for name, codec in found.items()]
    return "\n\n".join(lines) + "\n"


def scores_page() -> str:
    """Return the page of all pruning scores."""
    rows = [
        (
            f"[`{name}`](#{_anchor(score)})",
            f"`{score.statistic}`" if score.statistic else "weights only",
            score.scope,
            _first_line(score),
        )
        for name, score in SCORES.items()
    ]
    lines = [
        "# Scores",
        "Pruning removes the weights of lowest (score, index). `tensorcomp calibrate` or "
        "`tensorcomp.pruning.calibrate` measures the statistics. Write your own score: "
        "[guide](../how-to/own-score.md).",
        _table(("score", "needs", "scope", "what it is"), rows),
        *(_section(score, name) for name, score in SCORES.items()),
    ]
    return "\n\n".join(lines) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def _section(kind: type, title: str) -> str:
    options = [f"heading: '{title}'", "members: false"]
    body = "\n".join(f"      {option}" for option in options)
    return f"::: {_path(kind)}\n    options:\n{body}"


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _anchor(kind: type) -> str:
    return _path(kind)


def _kind(codec: Any) -> str:
    return "transform" if codec.is_transform else "filter" if codec.is_filter else "serializer"


def _loss(codec: Any) -> str:
    return "lossless" if codec.lossless else "lossy"


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
