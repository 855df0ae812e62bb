"""Write a report as a section of a model card, in Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from tensorcomp._formatting import escaped, markdown_text
from tensorcomp.reports.report import Report, Section, pairs_table


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
    folder = report.stored is not None and report.stored.is_dir()
    yield f"## {report.kind}{about}"
    if report.stored is not None:
        files = "files that are themselves" if folder else "a file that is itself"
        yield from ("", f"Compressed by tensorcomp, into {files} valid safetensors.")
    yield from ("", *pairs_table((" ", " ", " "), report.figures).markdown())
    if notes := [*report.notes, *report.legend]:
        yield from ("", *(f"- {markdown_text(escaped(note))}" for note in notes))
    for section in report.sections:
        if isinstance(section, Section):
            yield from ("", f"### {section.title}", "", *section.table.markdown())
    if report.nouns != "tensors":
        yield from ("", f"### All {report.nouns}", "", *report.table.markdown())
    if report.stored is not None:
        yield from _loading(report.stored.name, is_folder=folder)
    yield from ("", "### Settings", "")
    if command:
        yield from ("```bash", escaped(command), "```", "")
    yield from pairs_table(("Setting", "Value"), settings.items()).markdown()


def _loading(name: str, *, is_folder: bool) -> Iterator[str]:
    """Yield how to load and how to restore the file or folder."""
    load = ["from tensorcomp.torch import load_file", "", f"tensors = load_file({name!a})"]
    if is_folder:
        load = ["from tensorcomp.hub import from_pretrained", "from transformers import AutoModel"]
        load += ["", f"model = from_pretrained(AutoModel, {name!a})"]
    restore = f"tensorcomp decompress {shlex.quote(escaped(name))}"
    yield from ("", "### Load", "", "```python", *load, "```")
    yield from ("", "### Restore", "", "```bash", "pip install tensorcomp", restore, "```")
