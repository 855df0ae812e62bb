"""Names that prefixes tell apart."""

import pytest

from tensorcomp._names import clean_name, match_names
from tensorcomp.errors import CheckpointError

OWN = ["layers.0.weight", "layers.1.weight", "layers.10.weight"]


@pytest.mark.parametrize("without", ["", "model.", "module.model."])
@pytest.mark.parametrize("before", ["", "optimizer.", "optimizer.state."])
def test_one_prefix_is_taken_away_or_put_before_or_both_if_that_is_allowed(without, before):
    wanted = {name: [without + name] for name in OWN}
    known = [before + name for name in OWN]
    found = {name: before + name for name in OWN}
    assert match_names(wanted, known, exchange=True) == found
    assert match_names(wanted, known) == ({} if without and before else found)


def test_names_as_they_are_come_first():
    known = ["a.weight", "model.a.weight"]
    assert match_names({"k": ["a.weight"]}, known) == {"k": "a.weight"}
    assert match_names({"k": ["model.a.weight"]}, known) == {"k": "model.a.weight"}


def test_the_prefix_of_most_names_counts_and_others_are_left_out():
    wanted = {"a": ["m.a.weight"], "b": ["m.b.weight"], "c": ["m.c.weight"]}
    known = ["x.a.weight", "a.weight", "b.weight"]
    assert match_names(wanted, known) == {"a": "a.weight", "b": "b.weight"}


def test_a_tied_name_serves_as_well():
    assert match_names({"k": ["m.head.weight", "m.embed.weight"]}, ["embed.weight"]) == {
        "k": "embed.weight"
    }


def test_a_part_of_a_word_is_no_end():
    assert match_names({"k": ["model.weight"]}, ["del.weight", "overweight"]) == {}
    assert match_names({"k": ["weight"]}, ["overweight"], exchange=True) == {}
    assert match_names({"k": ["a"]}, []) == {}
    assert match_names({}, ["a"]) == {}


@pytest.mark.parametrize(
    "wrapped",
    ["module.{}", "_orig_mod.{}", "module._orig_mod.{}", "model.{}", "model._orig_mod.{}"],
)
def test_what_wrappers_put_before_names_is_no_difference(wrapped):
    wrapped_names = {name: wrapped.format(name) for name in OWN}
    assert match_names({name: [name] for name in OWN}, wrapped_names.values()) == wrapped_names
    back = {name: [name] for name in wrapped_names.values()}
    assert match_names(back, OWN) == {wrapped_names[name]: name for name in OWN}


def test_what_wrappers_put_into_names_is_no_difference():
    inner = "layers.0._orig_mod.weight", "layers.1._checkpoint_wrapped_module.weight"
    assert match_names({"a": [OWN[0]], "b": [OWN[1]]}, inner) == dict(zip("ab", inner, strict=True))
    assert clean_name("_fsdp_wrapped_module.a._fsdp_wrapped_module.b") == "a.b"
    assert clean_name("module") == "module"
    both = ["module.a.weight", "a.weight"]
    assert match_names({"k": ["a.weight"], "l": ["module.a.weight"]}, both) == {
        "k": "a.weight",
        "l": "module.a.weight",
    }


@pytest.mark.parametrize(
    ("wanted", "known"),
    [
        (["0.weight", "1.weight"], ["student.0.weight", "student.1.weight", "teacher.0.weight"]),
        (["model.0.weight", "ema.0.weight"], ["0.weight"]),
    ],
)
def test_ambiguous_names_are_refused(wanted, known):
    names = {name: [name] for name in wanted}
    if len(wanted) < len(known):  # of which more match
        assert match_names(names, known) == {name: f"student.{name}" for name in wanted}
        known = [*known, "teacher.1.weight"]
    with pytest.raises(CheckpointError, match=r"one prefix, got several for '.*0\.weight'"):
        match_names(names, known)
