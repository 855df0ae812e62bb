"""Pickles are followed without importing or calling anything, whatever they hold."""

import collections
import contextlib
import io
import pickle
import pickletools
import sys
import zipfile
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorcomp
from tensorcomp.checkpoints.layouts.pickle_objects import Made, Named, walk
from tensorcomp.checkpoints.layouts.pickle_reader import read_pickle
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.errors import CheckpointError

SIMPLE = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
    | st.text() | st.binary(max_size=40)
)  # fmt: skip


@settings(deadline=None)
@given(
    st.recursive(
        SIMPLE,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(st.text(max_size=5) | st.integers(-9, 9), inner, max_size=4)
        ),
        max_leaves=20,
    ),
    st.integers(0, pickle.HIGHEST_PROTOCOL),
)
def test_plain_values_are_themselves(value: Any, protocol: int) -> None:
    file = io.BytesIO(pickle.dumps(value, protocol) + b"more")
    found = read_pickle(file)
    if protocol > 2:  # earlier ones make bytes by a call
        assert found == value
    assert file.read() == b"more"


def test_dicts_and_sets_by_other_names():
    for value in (
        collections.OrderedDict(b=1, a=[2]),
        collections.defaultdict(list, {1: 2}),
        collections.Counter("abca"),
        {1, "a", (2, "b")},
        frozenset((1, 2)),
    ):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            found = read_pickle(io.BytesIO(pickle.dumps(value, protocol)))
            if protocol and not isinstance(value, frozenset):
                assert found == value


class Trap:
    """Says what it is made by, and would tell if it were made."""

    made = 0

    def __new__(cls) -> "Trap":
        cls.made += 1
        return super().__new__(cls)

    def __setstate__(self, _: object) -> None:
        type(self).made += 1


def test_nothing_is_made_or_imported():
    trap = object.__new__(Trap)
    trap.content = [1, 2]  # type: ignore[attr-defined]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found = read_pickle(io.BytesIO(pickle.dumps(trap, protocol)))
        assert isinstance(found, Made)
        assert found.state == {"content": [1, 2]}
    assert Trap.made == 0
    before = set(sys.modules)
    attack = b"cthis_is_absent\nname\n(S'x'\ntR."
    made = read_pickle(io.BytesIO(attack))
    assert made.maker == Named("this_is_absent.name")
    assert set(sys.modules) == before
    for hostile in (
        b"cos\nsystem\n(S'touch /tmp/x'\ntR.",
        b"(S'x'\nios\nsystem\n.",
        b"(cos\nsystem\nS'x'\no.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93)R.",
    ):
        assert isinstance(read_pickle(io.BytesIO(hostile)), Made)


def test_code_in_files_is_never_run(tmp_path):
    class Attack:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "run"), "w")

    for zipped in (True, False):
        path = tmp_path / f"{zipped}.pt"
        torch.save([Attack(), torch.ones(5)], path, _use_new_zipfile_serialization=zipped)
        done = tensorcomp.compress(path)
        assert [row.name for row in done.summary.tensors] == ["1"]
        back = tensorcomp.decompress(done.path, tmp_path / "back")
        assert back.read_bytes() == path.read_bytes()
        back.unlink()
    assert not (tmp_path / "run").exists()


def test_odd_escapes_do_not_warn():
    assert read_pickle(io.BytesIO(b"S'\\w'\n.")) == "\\w"


DAMAGED = {
    "cut": pickle.dumps([1, "a", {2: 3}])[:-3],
    "empty": b"",
    "no opcode": b"\xff\xff",
    "empty stack": b"0.",
    "no mark": b"t.",
    "absent memo": b"h\x05.",
    "items of a number": b"K\x01K\x02K\x03s.",
    "elements of a text": b"\x8c\x01aK\x01a.",
    "odd items": b"}(K\x01u.",
    "class without a name": b"K\x01K\x02\x93.",
    "longer than the file": b"B\xff\xff\xff\x7fabc.",
    "longer than any": b"\x8e" + b"\xff" * 8 + b"abc.",
    "negative length": b"T\xff\xff\xff\xffabc.",
    "a number of too many digits": b"L" + b"9" * 10_000 + b"L\n.",
    "no tuple": b"\x87.",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_pickles_are_refused(kind):
    with pytest.raises(CheckpointError, match="holds a damaged pickle") as caught:
        read_pickle(io.BytesIO(DAMAGED[kind]))
    assert "\n" not in str(caught.value)


def test_deep_and_repeated_objects_take_little():
    deep = read_pickle(io.BytesIO(b"]" * 50_000 + b"a" * 49_999 + b"."))
    assert len(list(walk(deep))) <= 1001
    tuples = read_pickle(io.BytesIO(b"}" + b")" + b"\x85" * 100_000 + b"K\x01s."))
    assert len(tuples) == 1  # a key whose hash would overflow the stack
    twice = b"]q\x00" + b"".join(
        b"](h%ch%ceq%c" % (level, level, level + 1) for level in range(100)
    )
    assert len(list(walk(read_pickle(io.BytesIO(twice + b"."))))) < 1000
    cycle: list[Any] = [1]
    cycle.append({"back": cycle})
    assert len(list(walk(read_pickle(io.BytesIO(pickle.dumps(cycle)))))) == 2


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(CheckpointError):
        list(walk(read_pickle(io.BytesIO(data))))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([op.code for op in pickletools.opcodes]), max_size=60))
def test_any_opcodes_are_read_or_refused(codes: list[str]) -> None:
    data = "".join(codes).encode("latin-1") + b"\n1\n2\n."
    with contextlib.suppress(CheckpointError):
        list(walk(read_pickle(io.BytesIO(data))))


@pytest.mark.parametrize("zipped", [True, False])
def test_cut_torch_files_are_refused(zipped, tmp_path):
    path = tmp_path / "m"
    torch.save({"a": torch.randn(1000), "b": [1, 2]}, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    for size in [*range(24, 600, 23), len(whole) // 2, len(whole) - 100, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("zipped", [True, False])
def test_flipped_bits(zipped, tmp_path, damage):
    path = tmp_path / "m"
    value = {"a": torch.arange(20), "b": [1, 2.5, "text", torch.ones(2, 2).t()]}
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    damage(path, flips=150, seed=3)


def test_what_repeats_itself_is_gone_through_once():
    pairs = b"(" + b"".join(b"(X\x01\0\0\0kK\x01l" for _ in range(3000)) + b"lq\0"
    makers = {
        "pairs": b"ccollections\nOrderedDict\n(h\0tR",
        "arguments": b"cm\nf\nh\1R",
        "state": b"cm\nf\n)Rh\2b",
    }
    for make in makers.values():
        data = b"\x80\2(" + pairs + b"(h\0tq\1}q\2(X\1\0\0\0ah\0u" + make * 3000 + b"l."
        found = read_pickle(io.BytesIO(data))
        assert sum(1 for _ in walk(found)) < 50_000


def test_many_plain_values_are_passed_over():
    found = read_pickle(io.BytesIO(pickle.dumps({"a": list(range(100_000)), "b": [Trap]})))
    assert len(list(walk(found))) == 3


def test_damaged_pickles_in_sound_archives_are_told_of(tmp_path):
    torch.save({"a": torch.ones(300)}, tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as old, zipfile.ZipFile(tmp_path / "n", "w") as new:
        for name in old.namelist():
            new.writestr(name, b"\xff" if name.endswith(".pkl") else old.read(name))
    with open_checkpoint(tmp_path / "n") as checkpoint:
        (note,) = checkpoint.notes or ()
        assert "holds a damaged pickle" in note
        assert not checkpoint.arrays


def test_claims_of_a_pickle_are_held_against_the_file(tmp_path):
    torch.save({"a": torch.ones(3), "b": torch.ones(300)}, tmp_path / "m")
    for old, new in (
        (b"K\x03", b"K\x09"),
        (b"M,\x01", b"M\xff\xff"),
        (b"FloatStorage", b"BytesStorage"),
    ):
        with zipfile.ZipFile(tmp_path / "m") as source, zipfile.ZipFile(tmp_path / "n", "w") as out:
            for name in source.namelist():
                data = source.read(name)
                out.writestr(name, data.replace(old, new) if name.endswith(".pkl") else data)
        with open_checkpoint(tmp_path / "n") as checkpoint:
            size = (tmp_path / "n").stat().st_size
            assert sum(info.nbytes for info in checkpoint.tensors) == size
