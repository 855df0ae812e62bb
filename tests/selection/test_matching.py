"""Names that prefixes tell apart."""

import pytest

from tensorcomp.selection.stored.matching import match_names

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
