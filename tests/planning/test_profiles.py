from pathlib import Path

import pytest

from tensorcomp.errors import PlanError
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.planning.profiles import PROFILES, Profile, load_profile
from tensorcomp.planning.roles.classify import ROLES
from tensorcomp.planning.steps import expand_quantizer, instantiate

GOOD = """
summary = "mine"
protect = ["norm"]
smallest = 10
effort = "fast"
[budget]
min_snr = 20
[[candidates]]
roles = ["all"]
trees = ["uniform($step)"]
[[candidates]]
roles = ["linear", "conv"]
trees = ["uniform($step)", "raw"]
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", PROFILES)
def test_every_shipped_profile_loads(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.summary
    loses = name not in ("lossless", "training")
    assert bool(profile.candidates) == loses == bool(profile.budget.given())
    for role in ROLES:
        for template in profile.trees(role):
            for effort in EFFORTS:
                tree = instantiate(expand_quantizer(template, effort), 0.01)
                assert not tree.lossless


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "lossless"])
def test_what_must_not_be_lost_unasked_is_protected(name):
    profile = load_profile(name)
    for role in ("norm", "bias", "scale", "step", "table", "codebook", "direction", "mask"):
        assert profile.protects(role)
    assert profile.smallest == 4096
    assert not profile.protects("attention.q")


def test_all_but_some_roles_may_be_protected():
    profile = Profile("own", protect=("!linear", "!conv"))
    assert profile.protects("embedding")
    assert not profile.protects("attention.q")
    assert not profile.protects("conv")
    assert not Profile("own", protect=("attention", "!attention.v")).protects("attention.v")
    assert not Profile("own", protect=()).protects("norm")


def test_candidates_compete_where_they_may_pay():
    def families(profile: str, role: str) -> set[str]:
        return {tree.split("(")[0] for tree in load_profile(profile).trees(role)}

    assert families("transformer", "attention.q") >= {"$quantizer", "svd", "filter", "channel"}
    assert "$quantizer" in families("transformer", "embedding")
    assert "svd" not in families("transformer", "embedding")
    assert families("cnn", "conv") >= {"$quantizer", "channel", "filter"}
    assert families("mlp", "matrix") >= {"$quantizer", "magnitude"}


def test_a_file_of_ones_own(tmp_path):
    profile = load_profile(write(tmp_path, GOOD))
    assert (profile.name, profile.summary, profile.smallest) == ("mine", "mine", 10)
    assert (profile.effort, profile.budget.min_snr) == ("fast", 20)
    assert profile.trees("mlp") == ("uniform($step)", "raw")  # each once
    assert profile.trees("embedding") == ("uniform($step)",)
    assert profile.protects("norm")
    assert not profile.protects("bias")


def test_what_is_left_out_has_safe_defaults(tmp_path):
    profile = load_profile(write(tmp_path, ""))
    assert profile.candidates == ()
    assert profile.protects("norm")
    assert profile.smallest == 4096


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("summary", "sumary", "sumary"),
        ('["norm"]', '"norm"', "protect to be a list"),
        ('["norm"]', "[1]", "protect to be a list"),
        ('["norm"]', '["nrom"]', "nrom"),
        ("smallest = 10", "smallest = -1", "smallest"),
        ("smallest = 10", "smallest = 1.5", "smallest"),
        ("smallest = 10", "smallest = true", "smallest"),
        ('"fast"', '"slow"', "slow"),
        ('"fast"', "3", "effort"),
        ("min_snr = 20", 'min_snr = "x"', "min_snr"),
        ("min_snr = 20", "min_srn = 20", "min_srn"),
        ("min_snr = 20", "min_snr = nan", "min_snr"),
        ("min_snr = 20", "min_snr = 20\ntarget_ratio = 3", "one limit"),
        ("[budget]\nmin_snr = 20", "", "expected a [budget]"),
        ("[budget]\nmin_snr = 20", "budget = 20", "budget"),
        ('roles = ["all"]', "", "roles and trees"),
        ('roles = ["all"]', 'roles = ["al"]', "'al'"),
        ('roles = ["all"]', 'roles = ["all"]\nmore = 1', "roles and trees"),
        ('["uniform($step)"]', '"uniform($step)"', "trees to be a list"),
        ('["uniform($step)"]', '["uniform($step"]', "uniform"),
        ('["uniform($step)"]', '["unifrom($step)"]', "unifrom"),
        ('["uniform($step)"]', '["uniform($steps)"]', "steps"),
        ("[[candidates]]", "[candidates]", "expected TOML"),
        ("[budget]", "[budget", "expected TOML"),
    ],
)
def test_every_fault_of_a_file_is_named(tmp_path, old, new, words):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(PlanError, match=r"mine\.toml") as caught:
        load_profile(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", ["3", "{roles = 3}", '["x"]'])
def test_candidates_are_tables(tmp_path, value):
    with pytest.raises(PlanError, match="candidates"):
        load_profile(write(tmp_path, f"candidates = {value}\n[budget]\nmin_snr = 3"))


@pytest.mark.parametrize("value", ["[" * 2000, "{a=" * 2000, "9" * 5000], ids=["[", "{", "9"])
def test_values_that_no_parser_takes(tmp_path, value):
    with pytest.raises(PlanError, match=r"mine\.toml: expected TOML") as caught:
        load_profile(write(tmp_path, f"smallest = {value}"))
    assert "\n" not in str(caught.value)


def test_profiles_that_are_not_there(tmp_path):
    with pytest.raises(PlanError, match=r"of lossless, transformer.*got 'transfromer'"):
        load_profile("transfromer")
    with pytest.raises(PlanError, match="cannot be read"):
        load_profile(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(PlanError, match="cannot be read"):
        load_profile(str(tmp_path / "folder.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="cannot be read"):
        load_profile(str(tmp_path / "bytes.toml"))
