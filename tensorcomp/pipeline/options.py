"""Hold the options of compression, and turn them into a planner."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict

from tensorcomp._threads import thread_count
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, MAX_CHUNK_ELEMENTS
from tensorcomp.errors import MissingFileError, OptionError, PlanError, PruningError
from tensorcomp.io.locations import location
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.planning.plan import MAKE, Plan, plan_from_json

if TYPE_CHECKING:
    from tensorcomp.checkpoints.base import Checkpoint
    from tensorcomp.container.model import BasePaths
    from tensorcomp.pipeline.bundle import PlanGiven
    from tensorcomp.planning.budgets import Bound, Budget
    from tensorcomp.planning.calibrated import Calibrated
    from tensorcomp.planning.planner import Planner
    from tensorcomp.planning.profiles import Profile, Rule
    from tensorcomp.planning.statistics import Statistics
    from tensorcomp.selection.request import Pruning


_CHOICES = {"of": ("weights", "update"), "policy": ("exact", "resume", "archive")}

# What an object of each kind has, as classes are imported when they are used only.
_KINDS = {
    "budget": ("given", "a Budget"),
    "bounds": ("items", "a mapping of names to Budget"),
    "prune": ("granularity", "a Pruning"),
}


class CompressKeywords(TypedDict, total=False):
    """Fields of `CompressOptions`, as keywords of the functions that take them."""

    effort: str | None
    profile: str | Profile | None
    budget: Budget | None
    codecs: str | Rule | Iterable[str | Rule]
    bounds: Mapping[str, Budget] | None
    importance: str | os.PathLike[str] | Mapping[str, float] | None
    statistics: str | os.PathLike[str] | Statistics | None
    plan: str | os.PathLike[str] | Plan | None
    prune: Pruning | None
    base: str | os.PathLike[str] | Checkpoint | None
    bases: BasePaths
    of: str
    policy: str
    threads: int | None


@dataclass(frozen=True)
class CompressOptions:
    """Options of compression; lossless by default.

    Parameters
    ----------
    effort : {"balanced", "fast", "max"}, optional
        Time spent on size; by default the profile's, or balanced. ``fast`` decodes fastest,
        ``max`` may take five times as long.
    profile : str or Profile, optional
        ``lossless``, ``transformer``, ``cnn``, ``mlp``, ``memory``, ``speed``, ``training``, or the
        path of a TOML file. By default ``lossless``; ``transformer`` where a budget is given and no
        tree.
    budget : Budget, optional
        The largest error of each tensor, or the size of the file; by default the profile's.
    codecs : str, Rule or iterable of them
        ``SELECTOR=TREE``: trees for tensors by role, by name or for ``all``.
    bounds : mapping of str to Budget, optional
        Bounds of single tensors, by name, in place of the budget.
    importance : path or mapping of str to float, optional
        Cost of a unit of squared error in each tensor, under a size: a safetensors file of one
        positive array or scalar a tensor, of which the mean counts.
    statistics : path or Statistics, optional
        What `calibrate` measured: lossy tensors are then encoded for the least loss of the model,
        and a size is spread by what the loss feels.
    plan : path or Plan, optional
        Tree of each tensor, as `tensorcomp.plan` returns it; in place of all the above.
    prune : Pruning, optional
        Weights that are set to zero before anything is encoded; none by default. Bounds then hold
        for the others.
    base : path or Checkpoint, optional
        A relative of the model, such as the one it was tuned from: a checkpoint or a folder,
        compressed or not. Tensors are coded against its tensors where that is smaller; decoding
        needs it too. Under a bound, what is lost is lost of what changed.
    bases : path or iterable of paths, optional
        Files and folders to find the base's own bases in; else its own folder.
    of : {"weights", "update"}
        What relative bounds are relative to: a tensor, or what changed since the base.
    policy : {"exact", "resume", "archive"}
        What is lost of a training state, its weights by what changed since the base (see
        `planning.policies`); nothing by default.
    threads : int, optional
        All available processors by default. The bytes do not depend on it.
    chunk_elements : int
        Elements of a chunk at most: what a slice must decode, and what a thread holds.

    Raises
    ------
    OptionError
        If `effort`, `threads` or `chunk_elements` is out of range.
    PlanError
        If a plan is given beside what it replaces.
    PruningError
        If a plan is given beside pruning to a size.

    Examples
    --------
    >>> from tensorcomp import Budget, CompressOptions
    >>> CompressOptions(effort="fast", budget=Budget(min_snr=30)).budget.bound
    Bound(max_rel_l2=0.03162277660168379, max_abs_error=inf, max_output_error=inf)
    """

    effort: str | None = None
    profile: str | Profile | None = None
    budget: Budget | None = None
    codecs: str | Rule | Iterable[str | Rule] = ()
    bounds: Mapping[str, Budget] | None = None
    importance: str | os.PathLike[str] | Mapping[str, float] | None = None
    statistics: str | os.PathLike[str] | Statistics | None = None
    plan: str | os.PathLike[str] | Plan | None = None
    prune: Pruning | None = None
    base: str | os.PathLike[str] | Checkpoint | None = None
    bases: BasePaths = ()
    of: str = "weights"
    policy: str = "exact"
    threads: int | None = None
    chunk_elements: int = field(default=CHUNK_ELEMENTS, repr=False)

    def __post_init__(self) -> None:
        if self.effort is not None and self.effort not in EFFORTS:
            raise OptionError(f"expected an effort of {', '.join(EFFORTS)}, got {self.effort!r}")
        for name, (attribute, kind) in _KINDS.items():
            value = getattr(self, name)
            if value is not None and not hasattr(value, attribute):
                raise OptionError(f"expected {name} to be {kind}, got {value!r}")
        thread_count(self.threads)
        if not 1 <= self.chunk_elements <= MAX_CHUNK_ELEMENTS:
            raise OptionError(
                f"expected chunk_elements from 1 to {MAX_CHUNK_ELEMENTS}, got {self.chunk_elements}"
            )
        if not isinstance(self.codecs, str):  # an iterator can be read once only
            codecs = tuple(self.codecs) if isinstance(self.codecs, Iterable) else (self.codecs,)
            object.__setattr__(self, "codecs", codecs)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                given = f"{getattr(self, name)!r:.60}"
                raise OptionError(f"expected {name} to be of {', '.join(choices)}, got {given}")
        if self.of == "update" and self.base is None:
            raise PlanError("expected a base beside bounds of the update, got none; give base=…")
        if self.policy != "exact" and not replace(self, policy="exact").in_one_go:
            raise PlanError("expected no profile, budget, trees, plan or pruning beside a policy")
        if self.statistics is not None and self.importance is not None:
            raise PlanError("expected importance or statistics, got both; give one of them")
        if self.plan is None:
            return
        if any((self.profile, self.budget, self.codecs, self.bounds, self.importance)):
            raise PlanError(
                "expected no profile, budget or trees beside a plan, got some; leave them out"
            )
        if self.prune is not None and self.prune.target_size is not None:
            raise PruningError(
                "expected a sparsity to prune to beside a plan, got a target size; give a sparsity"
            )

    @property
    def plan_given(self) -> PlanGiven | None:
        """Planner of tensors once their references are known; None if as without."""
        if self.policy == "exact" and (self.base is None or self.is_lossless):
            return None
        from tensorcomp.planning.update_plans import plan_given

        return functools.partial(plan_given, policy=self.policy, of_update=self.of == "update")

    @property
    def thread_count(self) -> int:
        """Threads to encode on."""
        return thread_count(self.threads)

    @property
    def is_lossless(self) -> bool:
        """Whether nothing else than lossless compression is asked for."""
        asked = (self.profile, self.budget, self.bounds, self.importance)
        return all(value is None for value in asked) and not self.codecs

    @property
    def in_one_go(self) -> bool:
        """Whether what is written of a file is never changed, but for its header."""
        exact = self.is_lossless and self.policy == "exact"
        return exact and self.plan is None and self.prune is None

    @property
    def many_times(self) -> bool:
        """Whether files may be written several times, until they keep a size."""
        return self.plan is not None or self.planner().budget.is_size

    def calibrated(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Calibrated]:
        """Return the statistics of tensors, by name; nothing without statistics.

        Raises
        ------
        PlanError, CheckpointError
            If they are of another model, or damaged.
        """
        if self.statistics is None:
            return {}
        from tensorcomp.planning.calibrated import calibrated_tensors
        from tensorcomp.planning.statistics import Statistics

        lossless = self.plan is None and (self.is_lossless or self.planner().is_lossless)
        by_score = self.prune is not None and self.prune.stats is not None
        if lossless and not by_score:
            raise PlanError("expected a budget or trees beside statistics, got none; give one")
        statistics = Statistics.load(self.statistics)
        if by_score and (lossless or "second_moment" not in statistics.arrays):
            return {}
        return calibrated_tensors(statistics, shapes)

    def planner(self) -> Planner:
        """Return the planner; its modules are imported only now.

        Raises
        ------
        PlanError
            If what is asked for cannot be understood, or does not go together.
        """
        from tensorcomp.planning.budgets import Budget
        from tensorcomp.planning.importance import check_importance, load_importance
        from tensorcomp.planning.planner import Planner
        from tensorcomp.planning.profiles import Profile, Rule, load_profile, parse_rule

        codecs = (self.codecs,) if isinstance(self.codecs, (str, Rule)) else self.codecs
        rules = tuple(rule if isinstance(rule, Rule) else parse_rule(rule) for rule in codecs)
        limited = bool(self.bounds) or (self.budget is not None and bool(self.budget.given()))
        profile = self.profile
        if profile is None:
            profile = "transformer" if limited and not rules else "lossless"
        if not isinstance(profile, Profile):
            profile = load_profile(profile)
        if not profile.candidates and not rules and limited:
            raise PlanError(f"expected no budget for profile {profile.name}, which loses nothing")
        budget = self.budget if self.budget is not None and self.budget.given() else profile.budget
        if self.bounds and budget is not self.budget and budget.is_size:
            budget = Budget()  # who gives bounds did not ask for the size that a profile proposes
        bounds = {name: _bound(name, single) for name, single in (self.bounds or {}).items()}
        if self.statistics is None and (
            budget.max_output_error is not None
            or any(bound.max_output_error < math.inf for bound in bounds.values())
        ):
            raise PlanError("expected statistics for max_output_error, got none; give statistics=…")
        importance = self.importance
        if importance is not None and not budget.is_size:
            raise PlanError("expected bits per weight, a ratio or a size to spread by importance")
        if not isinstance(importance, Mapping | None):
            importance = load_importance(location(importance))
        return Planner(
            profile=profile,
            budget=budget,
            effort=self.effort or profile.effort or "balanced",
            rules=rules,
            bounds=bounds,
            importance=None if importance is None else check_importance(importance),
        )


def _bound(name: str, budget: Budget) -> Bound:
    bound: Bound | None = getattr(budget, "bound", None)
    if bound is None:
        raise PlanError(f"expected a limit on errors to bound tensor {name!r}, got {budget}")
    return bound


def load_plan(plan: str | os.PathLike[str] | Plan) -> Plan:
    """Return a plan, read from a file if need be.

    Raises
    ------
    PlanError
        If the file cannot be read or is not a plan.
    """
    if isinstance(plan, Plan):
        return plan
    try:
        text = location(plan).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise PlanError(f"{plan}: expected a plan, got other than text; {MAKE}") from error
    except MissingFileError:  # of a store
        raise
    except OSError as error:
        raise PlanError(f"{plan}: cannot be read: {error.strerror}") from error
    return plan_from_json(text, str(plan))
