"""Write a report as a section of a model card, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensorcomp._formatting import escaped, markdown_text
from tensorcomp._tables import Column, Table
from tensorcomp.reports.report import Report, Section


def model_card(report: Report, title: str, command: str, settings: Mapping[str, str]) -> str:
    """Return the text of a section, of second-level headings down.

    Parameters
    ----------
    report : Report
    title : str
        What the report is about: the name of a file, say.
    command : str
        The command line that made it; empty if there was none.
    settings : mapping of str to str
    """
    return "\n".join([*_lines(report, title, command, settings), ""])


def _lines(report: Report, title: str, command: str, settings: Mapping[str, str]) -> Iterator[str]:
    about = f": {markdown_text(escaped(title))}" if title else ""
    yield f"## {report.kind}{about}"
    if report.stored is not None:
        yield from ("", "Compressed by tensorcomp, into a file that is itself valid safetensors.")
    yield from ("", *_pairs(("", "", ""), report.figures))
    if notes := [*report.notes, *report.legend]:
        yield from ("", *(f"- {markdown_text(escaped(note))}" for note in notes))
    for section in report.sections:
        if isinstance(section, Section):
            yield from ("", f"### {section.title}", "", *section.table.markdown())
    if report.noun != "tensor":
        yield from ("", f"### Each {report.noun}", "", *report.table.markdown())
    if report.stored is not None:
        yield from _loading(report.stored.name, is_folder=report.stored.is_dir())
    yield from ("", "### Settings", "")
    if command:
        yield from ("```bash", escaped(command), "```", "")
    yield from _pairs(("Setting", "Value"), list(settings.items()))


def _pairs(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table of texts."""
    columns = [
        Column(title or " ", "", lambda row, n=n: row[n], left=True)  # type: ignore[misc]
        for n, title in enumerate(titles)
    ]
    return Table(columns, rows).markdown()


def _loading(name: str, *, is_folder: bool) -> Iterator[str]:
    """Yield how to load and how to restore the file or folder."""
    python = [
        "from tensorcomp.torch import load_file  # or tensorcomp.numpy",
        "",
        f"tensors = load_file({name!a})",
    ]
    if is_folder:
        python = [
            "from transformers import AutoModel",
            "",
            "from tensorcomp.hub import from_pretrained",
            "",
            f"model = from_pretrained(AutoModel, {name!a})",
        ]
    import shlex

    restored = f"tensorcomp decompress {shlex.quote(escaped(name))}"
    yield from ("", "### Load", "", "```python", *python, "```")
    yield from ("", "### Restore", "", "```bash", "pip install tensorcomp", restored, "```")
