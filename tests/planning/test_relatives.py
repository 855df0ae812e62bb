"""Relatives among checkpoints: found by names, shapes and values, whatever their types."""

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from checkpoint_files import write_safetensors

from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.planning.relatives import MAX_COST, Sketch, choose_bases, costs, nearest, sketch

Tensors = Mapping[str, np.ndarray]


def model(seed: int, layers: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = {"embed.weight": (100, 32)}
    for layer in range(layers):
        shapes |= {f"layers.{layer}.up.weight": (64, 32), f"layers.{layer}.down.weight": (32, 64)}
    tensors = {n: random.standard_normal(s).astype("f4") / 8 for n, s in shapes.items()}
    return {**tensors, "norm.weight": np.ones(32, "f4"), "step": np.array(7)}


def tuned(tensors: Tensors, seed: int, size: float = 1e-3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        n: a + (size * random.standard_normal(a.shape)).astype("f4") if a.ndim > 1 else a
        for n, a in tensors.items()
    }


def narrow(tensors: Tensors, dtype: type = ml_dtypes.bfloat16) -> dict[str, np.ndarray]:
    return {n: a.astype(dtype) if a.dtype == "f4" else a for n, a in tensors.items()}


@pytest.fixture
def drawn(tmp_path: Path):
    def draw(*models: Tensors) -> list[Sketch]:
        found = []
        for number, tensors in enumerate(models):
            path = write_safetensors(tmp_path / f"{number}.safetensors", tensors)
            with open_checkpoint(path) as source:
                found.append(sketch(source))
        return found

    return draw


def test_fine_tunes_are_a_star_around_their_base(drawn):
    base = model(0)
    tunes = [tuned(base, seed) for seed in range(1, 8)]
    chosen = choose_bases(drawn(*tunes[:3], base, *tunes[3:]))
    assert chosen == {3: None, **dict.fromkeys((0, 1, 2, 4, 5, 6, 7), 3)}
    assert next(iter(chosen)) == 3


def test_saves_of_a_run_have_a_step_close_by_as_base(drawn):
    saves = [model(0)]
    for seed in range(1, 9):
        saves.append(tuned(saves[-1], seed, 0.02))
    chosen = choose_bases(drawn(*saves))
    assert [base for base in chosen.values() if base is None] == [None]
    assert all(abs(one - base) <= 2 for one, base in chosen.items() if base is not None)


def test_strangers_have_no_base_and_families_are_told_apart(drawn):
    one, other = model(0), model(1)
    sketches = drawn(one, other, model(2), tuned(one, 5), tuned(other, 6))
    chosen = choose_bases(sketches)
    assert list(chosen.values()).count(None) == 3
    assert {frozenset(pair) for pair in chosen.items() if pair[1] is not None} == {
        frozenset({0, 3}),
        frozenset({1, 4}),
    }
    assert nearest(sketches[2], [sketches[0], sketches[1]]) is None
    assert nearest(sketches[2], []) is None


def test_a_narrow_copy_is_coded_against_the_wide_one(drawn):
    base, tune = model(0), tuned(model(0), 1)
    sketches = drawn(narrow(base), base, narrow(tune), tune, narrow(base, np.float16))
    chosen = choose_bases(sketches)
    assert chosen[0] == chosen[4] == 1
    assert chosen[2] == 3
    assert costs(sketches[0], [sketches[1]]) == 0
    assert costs(sketches[1], [sketches[0]]) > 0.3


@pytest.mark.parametrize("change", ["prefix", "other names", "rows", "a shard", "order"])
def test_relatives_are_found_in_other_files(drawn, change):
    base = model(0, layers=12)
    tune = tuned(base, 1, 1e-4)
    if change == "prefix":
        tune = {f"model.encoder.{name}": array for name, array in tune.items()}
    elif change == "other names":
        tune = {f"t{n}": array for n, array in enumerate(tune.values())}
    elif change == "rows":
        rows = np.zeros((24, 32), "f4")
        tune["embed.weight"] = np.concatenate([tune["embed.weight"], rows])
    elif change == "a shard":
        tune = {name: array for name, array in tune.items() if name > "layers.3"}
    else:
        tune = dict(reversed(tune.items()))
    known, new, stranger = drawn(base, tune, model(5, layers=12))
    assert nearest(new, [stranger, known]) == 1
    assert costs(new, [stranger])[0] > MAX_COST


def test_a_chain_has_its_depth_at_most(drawn):
    saves = [model(0)]
    for seed in range(1, 12):
        saves.append(tuned(saves[-1], seed, 0.02))
    chosen = choose_bases(drawn(*saves), max_depth=2)
    depths: dict[int, int] = {}
    for one, base in chosen.items():
        depths[one] = 0 if base is None else depths[base] + 1
    assert 1 <= max(depths.values()) <= 2
    assert len(chosen) == len(saves)


def test_ties_are_given_to_the_caller(drawn):
    base = model(0)
    asked = []

    def pick(index: int, ties: list[int]) -> int:
        asked.append((index, sorted(ties)))
        return max(ties)

    sketches = drawn(*(tuned(base, seed, 0.02) for seed in range(4)))
    chosen = choose_bases(sketches, pick)
    assert asked
    assert all(chosen[index] == max(ties) for index, ties in asked)


def test_odd_tensors_have_sketches(drawn):
    odd = {
        "empty": np.zeros((0, 4), "f4"),
        "one": np.array(3, "i8"),
        "complex": np.ones((5, 5), "c8"),
        "nan": np.full((6, 6), np.nan, "f8"),
        "huge": np.full((6, 6), -1e300),
        "mask": np.ones((7, 7), bool),
        "opaque": ("F4", (8, 8), b"\x12" * 32),
        "fp8": np.ones((9, 9), ml_dtypes.float8_e4m3fn),
        "exponents": np.ones((9, 9), ml_dtypes.float8_e8m0fnu),
    }
    one, same, nothing = drawn(odd, odd, {})
    assert nearest(one, [nothing, same]) == 1
    assert nearest(nothing, [one]) is None
    assert choose_bases([nothing, one, same]) == {1: None, 2: 1, 0: None}
