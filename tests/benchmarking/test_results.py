"""The tables of results, and the commands that print them."""

from importlib.util import find_spec


def test_every_section_names_a_module_that_runs(bench):
    results = bench("results")
    text = results.RESULTS.read_text()
    found = results.commands(text)
    assert len(found) == text.count("<!-- begin") == text.count("<!-- end")
    for command in found.values():
        program, option, module, *_, last = command.split()
        assert (program, option, last) == ("python", "-m", "--markdown")
        package = bench(module.removeprefix("benchmarks."))
        assert hasattr(package, "main") or find_spec(f"{module}.__main__")


def test_one_section_is_replaced(bench):
    results = bench("results")
    text = "A\n<!-- begin a: x --markdown -->\n\n1\n\n<!-- end a -->\nB\n"
    both = text + text.replace(" a", " b")
    new = results.replaced(both, "a", "2\\1\n")
    assert new == text.replace("1", "2\\1") + text.replace(" a", " b")
    assert results.commands(both) == {"a": "x --markdown", "b": "x --markdown"}
