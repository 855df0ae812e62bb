import base64
import hashlib
import json
import math
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tensorcomp.errors import CheckpointError
from tensorcomp.pipeline.summary import CheckpointSummary
from tensorcomp.pipeline.tensor_summary import TensorSummary
from tensorcomp.reports import save_report
from tensorcomp.reports.report import Report, Share, layers, natural

VOID = {"meta", "input", "br"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"quoted\" 'twice' & &lt;escaped&gt;",
    "right \u202eto left",
    "two\nlines\r\nand\ttabs\x00\x1b[31m",
    "<!--<script>",
    "]]>",
    "x" * 50_000,
    "9" * 50_000 + ".w",
    "lone \udc80 surrogate",
    "",
]


def row(name: str, **fields: object) -> TensorSummary:
    figures = {"dtype": "BF16", "shape": (64, 64), "role": "mlp", "nbytes": 8192, "stored": 2048}
    figures |= {"tree": "uniform(step=0.1)", "rel_l2": 0.05}
    return TensorSummary(name, **{**figures, **fields})


def summary(*rows: TensorSummary) -> CheckpointSummary:
    sizes = sum(one.nbytes for one in rows) + 100, sum(one.stored for one in rows) + 100
    return CheckpointSummary(*sizes, rows, compressed=True)


class Page(HTMLParser):
    """A page taken apart: it refuses elements that are not closed, and takes texts by element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == ["html"]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open[-1] == tag == "html":
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> dict:
        return json.loads(self.texts["script"][0], parse_constant=pytest.fail)

    def column(self, title: str) -> list[str]:
        (found,) = (column for column in self.data["columns"] if column["title"] == title)
        texts = [*found["texts"], found["none"]]
        return [texts[place] for place in found["places"]]


@pytest.fixture
def page(tmp_path: Path):
    def read(result: object, **given: object) -> Page:
        path = tmp_path / "report.html"
        save_report(result, path, force=True, **given)
        return Page(path.read_text("utf-8"))

    return read


def test_nothing_but_its_own_style_and_script_may_run(page):
    made = page(summary(row("a")))
    policy = next(one["content"] for one in made.of("meta") if "http-equiv" in one)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for tag in ("style", "script"):
        digest = hashlib.sha256(made.texts[tag][-1].encode()).digest()
        assert rules[f"{tag}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    known = {"src", "href", "style", "srcset", "action", "data", "background"}
    assert not [one for one in made.tags if known & set(one[1])]
    assert not [name for _, one in made.tags for name in one if name.startswith("on")]
    assert "http" not in made.text.replace("http-equiv", "")


def test_structure_that_screen_readers_need(page):
    made = page(summary(row("layers.0.a"), row("layers.1.a", rel_l2=0.1)), command="run it")
    assert made.of("html") == [{"lang": "en"}]
    counts = {tag: len(made.of(tag)) for tag in ("h1", "main", "header", "footer", "title")}
    assert counts == {"h1": 1, "main": 1, "header": 1, "footer": 1, "title": 2}  # one of the plot
    ids = [one["id"] for _, one in made.tags if "id" in one]
    assert len(ids) == len(set(ids))
    for _, attributes in made.tags:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids
    assert all("aria-labelledby" in one for one in made.of("section"))
    assert len(made.of("caption")) == len(made.of("table")) == 5
    pictures = [one for one in made.of("svg") if one.get("role") == "img"]
    assert [one["aria-labelledby"].split() for one in pictures] == [
        ["section2-title", "section2-desc"]
    ]
    assert all(one.get("aria-hidden") for one in made.of("svg") if one not in pictures)
    assert all(one["scope"] in ("row", "col") for one in made.of("th"))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text(page, name):
    tame = page(
        summary(row("tame", role="r"), row("other")), title="t", command="c", settings={"a": "b"}
    )
    made = page(
        summary(row(name, role=name or "r", tree=name or "t", reason=name), row("other")),
        title=name or "t",
        command=name or "c",
        settings={name or "a": name or "b"},
    )
    assert made.text.replace("\n", "").isprintable()
    assert [tag for tag, _ in made.tags] == [tag for tag, _ in tame.tags]
    assert "<" not in made.texts["script"][0]
    assert len(made.column("Tensor")[0]) <= 301
    assert made.column("Tensor")[1] == "other"
    if name == HOSTILE[0]:
        assert made.column("Tensor")[0] == name
        assert name in made.texts["h1"]


def test_columns_are_ranked_and_lose_no_row(page):
    sizes = [10_000, 999, 1_000_000, 0, 999]
    rows = [row(f"layers.{10 - n}.w", stored=size, nbytes=10**6) for n, size in enumerate(sizes)]
    made = page(summary(*rows))
    assert made.data["rows"] == 5
    assert made.column("Bytes") == ["10.0 kB", "999 B", "1.00 MB", "0 B", "999 B"]
    columns = {column["title"]: column for column in made.data["columns"]}
    assert columns["Bytes"]["places"] == [2, 1, 3, 0, 1]
    assert columns["Tensor"]["places"] == [4, 3, 2, 1, 0]
    assert columns["Ratio"]["places"][3] == -1


def test_infinities_and_nan(page):
    rows = [
        row("inf", rel_l2=math.inf),
        row("nan", rel_l2=math.nan),
        row("one"),
        row("nothing", shape=(0, 4), nbytes=0, stored=0, rel_l2=0.0),
    ]
    made = page(summary(*rows))
    assert made.column("SNR dB")[0] == "-inf"
    columns = {column["title"]: column for column in made.data["columns"]}
    assert columns["SNR dB"]["places"] == [0, -1, 1, -1]
    (dots,) = (one for one in made.of("path") if "data-rows" in one)
    assert dots["data-rows"] == "2"


@pytest.mark.parametrize("errors", [(), (0.05,), (0.0,), (math.inf,), (0.0, math.nan)])
def test_few_tensors(page, errors):
    rows = [row(f"w{n}", rel_l2=error) for n, error in enumerate(errors)]
    made = page(summary(*rows))
    assert made.data["rows"] == len(rows)
    assert any("data-rows" in one for one in made.of("path")) == (0.05 in errors)


def test_no_tensors_at_all(page):
    made = page(Report("Sparsity", [], summary(row("w")).table()._replace(rows=[])))
    assert "There are no tensors to show." in made.texts["p"]


def test_ten_thousand_names_without_structure_take_no_time(page):
    begun = time.perf_counter()
    made = page(summary(*(row(f"{n * 7919 % 10_007}.w{n}") for n in range(10_000))))
    assert time.perf_counter() - begun < 10
    assert made.data["rows"] == 10_000


def test_the_worst_come_first_and_exact_ones_never(page):
    rows = [row("best", rel_l2=0.01), row("exact", rel_l2=0.0), row("gone", rel_l2=1.0)]
    rows.append(row("lost row", rel_l2=0.02, row_error=0.9))
    text = page(summary(*rows)).text
    worst = text[text.index("that lost most</h2>") : text.index('id="all"')]
    assert re.findall(r'<th class="left" scope="row">(.*?)</th>', worst) == [
        *("lost row", "gone", "best")
    ]


def test_the_shorter_bar_is_in_front(page):
    rows = row("layers.0.w", nbytes=8192, stored=2048), row("layers.1.w", nbytes=2048, stored=8192)
    bars = [attributes for tag, attributes in page(summary(*rows)).tags if tag == "rect"][-4:]
    drawn = [(bar["class"], bar["width"]) for bar in bars]
    first = [("before", "100.00"), ("after", "25.00")]
    assert drawn == [*first, ("after", "100.00"), ("before", "25.00")]


def test_size(page):
    few = len(page(summary(row("a"))).text.encode())
    many = [
        row(
            f"model.layers.{n // 7}.mlp.{n % 7}_proj.weight", stored=9000 + n, rel_l2=0.01 + n / 1e7
        )
        for n in range(10_000)
    ]
    assert few < 22_000
    assert len(page(summary(*many)).text.encode()) < few + 110 * len(many)


def test_layers():
    def labels(*names: str) -> list[str]:
        return [one.label for one in layers([Share(name, 1, 1, 1) for name in names])]

    assert labels("model.layers.7.mlp.up.weight", "blk.0.q", "0.weight") == [
        *("model.layers.7", "blk.0", "0")
    ]
    assert labels("model.embed.weight", "head", "a/b/kernel") == ["model.embed", "head", "a/b"]
    folded = labels(*(f"h.{n}.w" for n in range(50)), *(f"tail{n}.w" for n in range(60)))
    assert folded[:3] == ["h.0–2"] * 3
    assert folded[48:50] == ["h.48–49"] * 2
    assert len(set(folded)) == 32
    assert folded.count("others") == 60 + 17 - 31
    assert sorted(["h.10", "h.9", "h"], key=natural) == ["h", "h.9", "h.10"]


def test_what_is_shown_of_a_command_has_no_secrets(page):
    url = "s3://key:pass/word@bucket/m.safetensors?X-Amz-Signature=abc#d"
    words = f"compress {url} --importance=https://user:p@ss@host/x?token=123"
    made = page(summary(row("a")), command=words, settings={"--from": url}, title=url)
    shown = [*made.texts["code"], *made.texts["dd"], *made.texts["h1"], *made.texts["title"]]
    assert shown[0] == "compress s3://bucket/m.safetensors --importance=https://host/x"
    for secret in ("pass", "word", "key", "Signature", "token", "p@ss", "user"):
        assert secret not in "".join(shown)
    assert "Signature" not in made.text


def test_where_it_cannot_be_saved(tmp_path):
    made = summary(row("a"))
    with pytest.raises(CheckpointError, match=r"report\.txt: expected a name that ends in"):
        save_report(made, tmp_path / "report.txt")
    save_report(made, tmp_path / "report.html")
    before = (tmp_path / "report.html").read_bytes()
    with pytest.raises(CheckpointError, match="exists already"):
        save_report(summary(), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_names_of_this_machine_are_left_out(page):
    import platform

    text = page(summary(row("a"))).text
    assert str(Path.home()) + "/" not in text
    assert platform.node() not in text
    assert str(Path.cwd()) not in text
