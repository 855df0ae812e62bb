import ast
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_MODULES = sorted(path for room in ("tensorcomp", "cli") for path in (_ROOT / room).rglob("*.py"))
_MAX_LINE = 75
_WRONG_BEGINNINGS = {"What", "How", "Which", "Where", "Turns"}


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: path.relative_to(_ROOT).as_posix())
def test_first_lines_of_public_docstrings(path):
    module = ast.parse(path.read_text("utf-8"))
    wrong = [f"{name}: {fault}" for name, line in first_lines(module) for fault in faults(line)]
    assert not wrong, "\n".join(wrong)


def first_lines(node, name="module"):
    """Yield the first docstring lines of a node and of the public names within it."""
    yield name, (ast.get_docstring(node) or "").partition("\n")[0]
    for child in node.body if isinstance(node, ast.Module | ast.ClassDef) else []:
        is_named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_named and not child.name.startswith("_"):
            yield from first_lines(child, child.name)


def faults(line):
    """Yield what is wrong with the first line of a docstring."""
    if len(line) > _MAX_LINE:
        yield f"expected at most {_MAX_LINE} characters, got {len(line)}: {line}"
    if not line.endswith("."):
        yield f"expected a full stop at the end, got {line!r}"
    if line.split(" ")[0].rstrip(".,:") in _WRONG_BEGINNINGS:
        yield f"expected an imperative or a noun at the beginning, got {line!r}"
