"""Profiles: which trees may compete for which tensors, what is protected, and the usual budget.

A profile is a TOML file; those of tensorcomp lie in the folder ``profiles``, and a user's own file
has the same form::

    summary = "one line"
    protect = ["norm", "bias"]      # roles that stay lossless
    smallest = 4096                 # tensors of fewer elements stay lossless
    effort = "max"                  # unless the user says another

    [budget]                        # unless the user gives one: one of the limits of `Budget`
    min_snr = 30

    [[candidates]]                  # a tensor is offered the trees of every table that names it
    roles = ["attention", "mlp"]    # role selectors, or "all"
    trees = ["uniform($step)"]      # see `steps`: $step is found, $quantizer follows the effort

Codecs of other packages add their templates to the profiles of tensorcomp. No tree is forced: those
that a tensor is offered compete by their measured rate and error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tensorcomp.codecs.registry import added_templates
from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Budget, budget_of
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.planning.roles.classify import check_selector, matches_role
from tensorcomp.planning.steps import check_template

PROFILES = ("lossless", "transformer", "cnn", "mlp", "memory", "speed")
_FOLDER = Path(__file__).with_name("profiles")
_PROTECTED = ("norm", "bias", "scale", "router", "step")
_SMALLEST = 4096
_KEYS = {"summary", "protect", "smallest", "effort", "budget", "candidates"}


@dataclass(frozen=True)
class Candidates:
    """Trees that tensors of some roles are offered.

    Parameters
    ----------
    roles : tuple of str
        Selectors.
    trees : tuple of str
        Templates.
    """

    roles: tuple[str, ...]
    trees: tuple[str, ...]


@dataclass(frozen=True)
class Profile:
    """What a profile's file says.

    Parameters
    ----------
    name : str
    summary : str
    budget : Budget
        Taken where the user gives none.
    candidates : tuple of Candidates
        Empty for lossless.
    protect : tuple of str
        Selectors of roles that stay lossless.
    smallest : int
        Elements below which a tensor stays lossless.
    effort : str or None
        Taken where the user gives none.
    """

    name: str
    summary: str = ""
    budget: Budget = field(default_factory=Budget)
    candidates: tuple[Candidates, ...] = ()
    protect: tuple[str, ...] = _PROTECTED
    smallest: int = _SMALLEST
    effort: str | None = None

    def protects(self, role: str) -> bool:
        """Return whether tensors of a role stay lossless."""
        return any(matches_role(selector, role) for selector in self.protect)

    def trees(self, role: str) -> tuple[str, ...]:
        """Return the templates that a tensor of a role is offered, each once."""
        found = [
            tree
            for table in self.candidates
            if any(matches_role(selector, role) for selector in table.roles)
            for tree in table.trees
        ]
        return tuple(dict.fromkeys(found))


def load_profile(name: str) -> Profile:
    """Return the profile of this name, or that of a TOML file.

    Parameters
    ----------
    name : str
        One of `PROFILES`, or a path that ends in ``.toml``.

    Raises
    ------
    PlanError
        If there is no such profile, or it is not what the module's docstring says.
    """
    if name in PROFILES:
        found = _parse((_FOLDER / f"{name}.toml").read_text("utf-8"), name)
        added = Candidates(("all",), added_templates(lossless=False))
        return replace(found, candidates=(*found.candidates, added)) if found.candidates else found
    if not name.endswith(".toml"):
        raise PlanError(
            f"no profile is called {name!r}; known: {', '.join(PROFILES)}; "
            "a file of your own ends in .toml"
        )
    try:
        text = Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise PlanError(f"profile {name}: cannot be read: {reason}") from error
    return _parse(text, name)


def _parse(text: str, name: str) -> Profile:
    import tomllib

    try:
        return _from_table(tomllib.loads(text), name)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"profile {name}: is no TOML ({error})") from error
    except PlanError as error:
        raise PlanError(f"profile {name}: {error}") from error


def _from_table(table: Mapping[str, Any], name: str) -> Profile:
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise PlanError(f"unknown keys {', '.join(unknown)}; known: {', '.join(sorted(_KEYS))}")
    smallest = table.get("smallest", _SMALLEST)
    if type(smallest) is not int or smallest < 0:
        raise PlanError(f"smallest is a number of elements; got {smallest!r}")
    effort = table.get("effort")
    if effort is not None and effort not in EFFORTS:
        raise PlanError(f"effort is one of {', '.join(EFFORTS)}; got {effort!r}")
    budget = budget_of(table.get("budget", {}))
    tables = table.get("candidates", [])
    if not isinstance(tables, list):
        raise PlanError("candidates are tables, each under [[candidates]]")
    candidates = tuple(_candidates(item) for item in tables)
    if candidates and not budget.given():
        raise PlanError("candidates need a [budget] to compete under")
    return Profile(
        name=Path(name).stem,
        summary=str(table.get("summary", "")),
        budget=budget,
        candidates=candidates,
        protect=_selectors(table.get("protect", list(_PROTECTED)), "protect"),
        smallest=smallest,
        effort=effort,
    )


def _candidates(item: Any) -> Candidates:
    table = _table(item, "candidates")
    if set(table) != {"roles", "trees"}:
        raise PlanError(f"candidates have roles and trees; got {', '.join(sorted(table))}")
    trees = _texts(table["trees"], "trees")
    for tree in trees:
        check_template(tree)
    return Candidates(_selectors(table["roles"], "roles"), trees)


def _table(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PlanError(f"{what} is a table; got {value!r}")
    return value


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PlanError(f"{what} is a list of texts; got {value!r}")
    return tuple(value)


def _selectors(value: Any, what: str) -> tuple[str, ...]:
    selectors = _texts(value, what)
    for selector in selectors:
        check_selector(selector)
    return selectors
