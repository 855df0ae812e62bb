import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from markdown_it import MarkdownIt
from test_report_page import HOSTILE, row, summary

from tensorcomp import Budget, compress
from tensorcomp._formatting import printable
from tensorcomp.reports import save_report

GFM = MarkdownIt("gfm-like", {"html": True, "linkify": False})


def tokens(text: str) -> list[str]:
    """Return the kinds of all parts of a text in Markdown but plain text."""
    parts = (part for block in GFM.parse(text) for part in [block, *(block.children or [])])
    return [part.type for part in parts if part.type != "text"]


def cells(text: str) -> list[str]:
    """Return the texts of all cells and lines, as they are shown."""
    blocks = [block for block in GFM.parse(text) if block.type == "inline"]
    return ["".join(part.content for part in block.children or []) for block in blocks]


def card(result: object, path: Path, **given: object) -> str:
    save_report(result, path, force=True, **given)
    return path.read_text("utf-8")


@pytest.mark.parametrize(
    "name",
    [
        *HOSTILE,
        *(
            "a|b",
            "`code`",
            "[x](javascript:alert(1))",
            "![x](http://y)",
            "**bold** __init__ ~~no~~",
        ),
        *("https://evil.example", "www.evil.example", "# head", "@someone", "\\", "$x$", "&amp;"),
    ],
    ids=range(len(HOSTILE) + 12),
)
def test_hostile_names_stay_text(tmp_path, name):
    tame = card(summary(row("tame")), tmp_path / "a.md", title="t", settings={"a": "b"})
    made = card(
        summary(row(name, role=name or "role")),
        *(tmp_path / "b.md",),
        title=name.strip() or "t",
        settings={"a": name},
    )
    assert tokens(made) == tokens(tame)
    assert "://" not in made
    assert "www." not in made
    shown = printable(name)
    assert shown in cells(made) or shown != shown.strip() or not shown


def test_a_compressed_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(0).standard_normal((100, 80)).astype(np.float32)
    safetensors.numpy.save_file({"w": weights}, "a 'b.safetensors")
    result = compress("a 'b.safetensors", budget=Budget(max_rel_l2=0.1))
    made = card(result, tmp_path / "card.md", command="tensorcomp compress it")
    assert made.startswith("## Compressed checkpoint: a 'b.tc.safetensors\n")
    assert f"| Ratio | {result.ratio:.3f} |" in made
    assert "| Lowest SNR | 20." in made
    assert "```bash\ntensorcomp compress it\n```" in made
    python, restore = re.findall(r"```(?:python|bash)\n(.*?)\n```", made, re.DOTALL)[:2]
    found: dict[str, Any] = {}
    exec(python.replace("tensorcomp.torch", "tensorcomp.numpy"), found)
    np.testing.assert_allclose(found["tensors"]["w"], weights, atol=1)
    assert shlex.split(restore.splitlines()[-1]) == [
        "tensorcomp",
        "decompress",
        str(result.path.name),
    ]


def test_a_compressed_folder(tmp_path):
    (tmp_path / "model").mkdir()
    safetensors.numpy.save_file({"w": np.zeros((9, 9))}, tmp_path / "model" / "model.safetensors")
    made = card(compress(tmp_path / "model"), tmp_path / "card.md")
    assert "into files that are themselves valid safetensors" in made
    assert "from transformers import AutoModel" in made
    assert "from_pretrained(AutoModel, 'model.tc')" in made
    assert "| Error | none |" in made
    assert "tensorcomp decompress model.tc" in made
