"""What all verbs have in common: help by groups, hints, quiet and verbose, completion."""

import os
import subprocess
import sys

import pytest

from tensorcomp_cli.main import VERBS

GROUPS = ["Most used", "Budget (one limit)", "Planning", "Pruning", "Options", "Output"]


def sections(text: str) -> dict[str, list[str]]:
    """Return the options of a help page by their groups."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            found[line[:-1]] = []
        elif line.startswith("  -") and found:
            found[list(found)[-1]].append(line.split()[0].rstrip(","))
    return found


def test_options_stand_in_groups_and_the_most_used_come_first(call):
    found = sections(call("compress", "--help").stdout)
    assert list(found) == ["Positional arguments", *GROUPS]
    used = ["-o", "--profile", "--min-snr", "--bits-per-weight", "--effort", "--base"]
    assert found["Most used"] == used
    output = ["--force", "--replace", "--keep-names", "--report", "--metrics", "--json", "-q", "-v"]
    assert found["Output"] == [*output, "-h"]
    planned = sections(call("plan", "--help").stdout)
    assert planned["Pruning"] == found["Pruning"]
    of_jobs = ("--plan", "--of", "--policy")
    assert planned["Planning"] == [o for o in found["Planning"] if o not in of_jobs]


@pytest.mark.parametrize("verb", VERBS)
def test_groups_have_one_order_on_all_help_pages(call, verb):
    command = {"gradients": ["gradients", "estimate"], "series": ["series", "add"]}.get(
        verb, [verb]
    )
    found = list(sections(call(*command, "--help").stdout))
    order = ["Positional arguments", *GROUPS]
    assert found == sorted(found, key=order.index)


def test_no_summary_of_a_verb_is_cut_short(call):
    text = " ".join(call("--help").stdout.split())
    assert all(f"{name} {summary}" in text for name, summary in VERBS.items())


@pytest.mark.parametrize(
    ("verb", "hint"),
    [
        ("prune", "compress --prune SCORE --sparsity X"),
        ("compres", "compress"),
        ("info", "inspect"),
        ("estimate", "gradients estimate"),
    ],
)
def test_an_unknown_verb_gives_a_hint(call, verb, hint):
    call.refused(f"No such command '{verb}' (did you mean `tensorcomp {hint}`?)", verb, "x")


def test_quiet_prints_tables_only(call, model):
    assert call("compress", model, "-q").stdout == ""
    packed = model.with_name("model.tc.safetensors")
    assert call("verify", packed, "--quiet").stdout == ""
    table = call("inspect", packed, "-q").stdout
    assert table == "".join(call("inspect", packed).stdout.partition("\n\n")[0] + "\n")
    assert call("decompress", packed, "-q", "--json", "-o", model.with_name("b")).stdout


def test_verbose_logs_on_stderr(call, model):
    done = call("compress", model, "-v", "--json")
    assert done.status == 0
    lines = done.stderr.splitlines()
    assert f"tensorcomp compress source={model}" in lines[0]
    assert not any("position_ids" in line for line in lines)
    assert any("a file of 6 tensors, " in line for line in lines)
    more = call("compress", model, "-vv", "--force").stderr
    assert "position_ids: 512 bytes done" in more
    assert call("inspect", model).stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_shells(call, shell):
    done = call.ok("completion", shell)
    assert "_TENSORCOMP_COMPLETE" in done.stdout
    assert call("completion", "csh").status == 2


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("tensorcomp comp", "plain,compress\nplain,compare\nplain,completion"),
        ("tensorcomp compress --bits", "plain,--bits-per-weight"),
        ("tensorcomp verify mod", "file,mod"),
    ],
)
def test_what_a_shell_is_offered(words, found):
    *_, last = words.split()
    environment = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "tensorcomp"],
        env={**os.environ, **environment, "_TENSORCOMP_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, found), last


def test_it_runs_as_a_module(model):
    command = [sys.executable, "-m", "tensorcomp", "inspect", model, "--csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("file,name,shape,dtype,role,bytes,bits_per_weight,")
    assert len(done.stdout.splitlines()) == 7


def test_plan_as_a_table_for_programs(call, model):
    lines = call("plan", model, "--csv").stdout.splitlines()
    columns = "predicted_bytes,predicted_rel_l2,predicted_loss,tree,why"
    assert lines[0] == f"name,shape,dtype,role,{columns}"
    assert len(lines) == 7
    assert call("plan", model, "--markdown").stdout.startswith("| Tensor | Shape | ")
    both = call("plan", model, "--markdown", "--csv")
    assert both.line.endswith("exclude each other; see tensorcomp plan --help")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-rel-l2", "0"], "--max-rel-l2 to be a finite number above 0"),
        (["--max-rel-l2", "1"], "every weight may become 0; give --max-rel-l2 below 1"),
        (["--min-snr", "0"], "every weight may become 0"),
        (["--codec", "linaer=raw"], "or a role: step, moment"),
        (["--min-snr", "3", "--max-rel-l2", "0.1"], "--max-rel-l2 and --min-snr"),
    ],
)
def test_errors_speak_of_options(call, model, options, words):
    call.refused(words, "compress", model, *options)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"hello", b"[]", b""])
def test_what_is_no_plan(call, model, tmp_path, content):
    plan = tmp_path / "plan.json"
    plan.write_bytes(content)
    line = call.refused("plan.json: expected a plan", "compress", model, "--plan", plan)
    assert "by tensorcomp plan" in line
