"""Training states that lose something: by policies, by settings of their own, by ExCP."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
from safetensors.numpy import save_file

import tensorcomp
from benchmarks.series.excp import excp
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import approximate, decode, encode, join
from tensorcomp.codecs.tree import Node
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.planning.lossless import plan_lossless
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.policies import (
    FIRST_MOMENTS,
    NO_FIRST_MOMENTS,
    POLICIES,
    RANK_1,
    Lossy,
    policy_plan,
    updates_by,
)
from tensorcomp.planning.roles.classify import classify
from tensorcomp.planning.trials import fit_steps

Arrays = dict[str, np.ndarray]
PREFIXES = ("", "exp_avg.", "exp_avg_sq.")  # of weights and moments


@dataclass(frozen=True)
class State:
    """Weights, first and second moments by the same names, and the count of steps."""

    weights: Arrays
    first: Arrays
    second: Arrays
    step: int

    @property
    def nbytes(self) -> int:
        """Bytes of all three."""
        return 12 * sum(array.size for array in self.weights.values())

    def tensors(self) -> Arrays:
        """Return the tensors of a file."""
        parts = zip(PREFIXES, (self.weights, self.first, self.second), strict=True)
        return {prefix + name: array for prefix, part in parts for name, array in part.items()}


@dataclass(frozen=True)
class Coded:
    """What a state is restored to, and the bytes of its payloads."""

    state: State
    nbytes: int


def _uniform(step: float) -> Lossy:
    return updates_by(step, "uniform", bound=None)


# What is coded by which rules: policies, and what they are chosen from.
SETTINGS: Mapping[str, tuple[Lossy, ...]] = {
    "policy resume": POLICIES["resume"],
    "policy archive": POLICIES["archive"],
    "w step 1, m step 2, v rank 1": (updates_by(1, bound=None), FIRST_MOMENTS, RANK_1),
    "w step 2, m zero, v rank 1": (updates_by(2, bound=None), NO_FIRST_MOMENTS, RANK_1),
    "w step 3.9, m zero, v rank 1": (_uniform(3.9), NO_FIRST_MOMENTS, RANK_1),
    "v rank 1": (RANK_1,),
    "m zero": (NO_FIRST_MOMENTS,),
}
EXCP: Mapping[str, float | None] = {"ExCP": 2.5, "ExCP as published": None}


def file_ratio(state: State, base: Arrays, setting: str) -> float:
    """Return the ratio of a state's file and that which a setting makes of it."""
    if setting in EXCP:
        return state.nbytes / coded(state, base, setting).nbytes
    with TemporaryDirectory() as name, patch.dict(POLICIES, {"archive": SETTINGS[setting]}):
        folder = Path(name)
        source, other = folder / "state.safetensors", folder / "base.safetensors"
        save_file(state.tensors(), source)
        save_file(base, other)
        done = tensorcomp.compress(source, folder / "out", base=other, policy="archive")
        return done.input_bytes / (folder / "out").stat().st_size


def coded(state: State, base: Arrays, setting: str) -> Coded:
    """Code a state by a setting and decode it again; `base` is what a decoder has."""
    if setting == "exact":
        return Coded(state, state.nbytes)
    if setting in EXCP:
        parts, nbytes = excp(state.weights, state.first, state.second, base, EXCP[setting])
        return Coded(State(*parts, state.step), nbytes)
    total, restored = 0, Arrays()
    with patch.dict(POLICIES, {setting: SETTINGS[setting]}):
        plans = {
            name: policy_plan(setting, classify(name, "F32", array.shape), array, base.get(name))
            for name, array in state.tensors().items()
        }
    for name, array in state.tensors().items():
        data, restored[name] = _coded(array, plans[name] or TensorPlan(), base.get(name))
        total += len(data)
    parts = [{name: restored[prefix + name] for name in state.weights} for prefix in PREFIXES]
    return Coded(State(*parts, state.step), total)


def _coded(
    array: np.ndarray, plan: TensorPlan, reference: np.ndarray | None
) -> tuple[bytes, np.ndarray]:
    """Return an array's payload by a plan, within its bound, and what it decodes to."""

    def errors(tree: Node) -> ErrorSums:
        return measure(array, approximate(tree, array, reference=reference))

    tree = plan.tree
    bound = plan.bound
    if tree is not None and bound is not None and bound.used(errors(tree).rel_l2, 0.0) > 1:
        tree = fit_steps(tree, bound, errors)
    if tree is None:
        tree = plan_lossless(array, "balanced").tree
    data = join(encode(tree, array, reference=reference))
    return data, decode(tree, data, spec_of(array), reference=reference)
