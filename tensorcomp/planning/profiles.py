"""Profiles and rules: which trees may compete for which tensors.

A profile is a TOML file; those of tensorcomp lie in the folder ``profiles``, and a user's own file
has the same form::

    summary = "one line"
    protect = ["norm", "bias"]      # roles that stay lossless
    smallest = 4096                 # tensors of fewer elements stay lossless
    effort = "max"                  # unless the user says another
    thorough = ["moment"]           # roles whose lossless trees are chosen with most effort

    [budget]                        # unless the user gives one: one of the limits of `Budget`
    min_snr = 30

    [[candidates]]                  # a tensor is offered the trees of every table that names it
    roles = ["attention", "mlp"]    # role selectors, or "all"
    trees = ["uniform($step)"]      # see `steps`: $step is found, $quantizer follows the effort

Codecs of other packages add their templates to the profiles of tensorcomp. No tree is forced: those
that a tensor is offered compete by their measured rate and error.

A rule, ``SELECTOR=TREE``, names a tree. The selector is a role (``attention``, ``linear``), a
tensor's name or a pattern of names (``encoder.*.weight``), ``all``, or all but what stands after
``!``. The first rule that selects a tensor counts. A role or a name asks for the tensor by name,
protected or not; ``all`` and ``!`` leave out what the profile protects and small tensors. The tree
may be a template (see `steps`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tensorcomp.codecs.registry import added_templates
from tensorcomp.errors import MissingFileError, PlanError
from tensorcomp.io.locations import location
from tensorcomp.planning.budgets import Budget, budget_of
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.planning.roles.classify import BUT, check_selector, have_role, selects
from tensorcomp.planning.steps import check_template

PROFILES = ("lossless", "transformer", "cnn", "mlp", "memory", "speed", "training")
EVERYTHING = "all"
_FOLDER = Path(__file__).with_name("profiles")
COMPUTED = ("table", "codebook", "direction", "mask")
_PROTECTED = ("norm", "bias", "scale", "router", "step", *COMPUTED)
_DEFAULT_SMALLEST = 4096
_KEYS = {"summary", "protect", "smallest", "effort", "thorough", "budget", "candidates"}
_RULE = re.compile(r"\s*([^=()]*?)\s*=\s*(.*)", re.DOTALL)


@dataclass(frozen=True)
class Candidates:
    """Templates that tensors of some roles are offered.

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
    """Candidates and defaults of a kind of model.

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
    thorough : tuple of str
        Selectors of roles whose lossless trees are chosen with most effort.
    """

    name: str
    summary: str = ""
    budget: Budget = field(default_factory=Budget)
    candidates: tuple[Candidates, ...] = ()
    protect: tuple[str, ...] = _PROTECTED
    smallest: int = _DEFAULT_SMALLEST
    effort: str | None = None
    thorough: tuple[str, ...] = ()

    def protects(self, role: str) -> bool:
        """Return whether tensors of a role stay lossless."""
        return have_role(self.protect, role)

    def trees(self, role: str) -> tuple[str, ...]:
        """Return the templates that a tensor of a role is offered, each once."""
        found = [
            tree
            for table in self.candidates
            if have_role(table.roles, role)
            for tree in table.trees
        ]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Rule:
    """Tree, or template, for the tensors that a selector names."""

    selector: str
    tree: str

    def selects(self, name: str, role: str) -> bool:
        """Return whether the rule is for a tensor."""
        return selects(self.selector, name, role)

    def knows(self, name: str, role: str) -> bool:
        """Return whether the selector names a tensor, to take it or leave it out."""
        return selects(self.selector.removeprefix(BUT), name, role)

    @property
    def by_name(self) -> bool:
        """Whether the rule asks for tensors by name or role, and not for all."""
        return self.selector != EVERYTHING and not self.selector.startswith(BUT)


def parse_rule(text: str) -> Rule:
    """Parse a rule ``SELECTOR=TREE``, or a tree alone, which is for all tensors.

    Raises
    ------
    PlanError
        If the tree cannot be understood.
    """
    match = _RULE.fullmatch(text) if isinstance(text, str) else None
    selector, tree = match.groups() if match else (EVERYTHING, str(text).strip())
    if not isinstance(text, str) or not selector or not tree:
        raise PlanError(f"expected a rule SELECTOR=TREE, or a tree for all, got {text!r}")
    check_template(tree)
    return Rule(selector, tree)


def load_profile(name: str) -> Profile:
    """Return the profile of this name, or that of a TOML file.

    Parameters
    ----------
    name : str
        One of `PROFILES`, or a path that ends in ``.toml``.

    Raises
    ------
    PlanError
        If no profile has this name, or the file is not as the module's docstring says.
    """
    if name in PROFILES:
        found = _parse((_FOLDER / f"{name}.toml").read_text("utf-8"), name)
        added = Candidates((EVERYTHING,), added_templates(lossless=False))
        return replace(found, candidates=(*found.candidates, added)) if found.candidates else found
    path = location(str(name))
    if path.suffix != ".toml":
        raise PlanError(
            f"expected a profile of {', '.join(PROFILES)}, or a file whose name ends in .toml, "
            f"got {str(path)!r}"
        )
    try:
        text = path.read_text("utf-8")
    except MissingFileError:  # of a store
        raise
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise PlanError(f"profile {path}: cannot be read: {reason}") from error
    return _parse(text, name)


def _parse(text: str, name: str) -> Profile:
    import tomllib

    try:
        return _from_table(tomllib.loads(text), name)
    except (ValueError, RecursionError) as error:  # tomllib's own is a ValueError
        raise PlanError(f"profile {name}: expected TOML, got an error: {error}") from error
    except PlanError as error:
        raise PlanError(f"profile {name}: {error}") from error


def _from_table(table: dict[str, Any], name: str) -> Profile:
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise PlanError(f"expected keys of {', '.join(sorted(_KEYS))}, got {', '.join(unknown)}")
    smallest, effort = table.get("smallest", _DEFAULT_SMALLEST), table.get("effort")
    if type(smallest) is not int or smallest < 0:
        raise PlanError(f"expected smallest to be a number of elements, got {smallest!r}")
    if effort is not None and effort not in EFFORTS:
        raise PlanError(f"expected an effort of {', '.join(EFFORTS)}, got {effort!r}")
    budget, tables = budget_of(table.get("budget", {})), table.get("candidates", [])
    if not isinstance(tables, list):
        raise PlanError("expected tables of candidates, each under [[candidates]], got one")
    candidates = tuple(map(_candidates, tables))
    if candidates and not budget.given():
        raise PlanError("expected a [budget] that candidates compete under, got none")
    return Profile(
        name=Path(name).stem,
        summary=str(table.get("summary", "")),
        budget=budget,
        candidates=candidates,
        protect=_selectors(table.get("protect", list(_PROTECTED)), "protect"),
        smallest=smallest,
        effort=effort,
        thorough=_selectors(table.get("thorough", []), "thorough"),
    )


def _candidates(table: Any) -> Candidates:
    if not isinstance(table, dict) or set(table) != {"roles", "trees"}:
        raise PlanError(f"expected candidates to have roles and trees, got {table!r}")
    trees = _texts(table["trees"], "trees")
    for tree in trees:
        check_template(tree)
    return Candidates(_selectors(table["roles"], "roles"), trees)


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PlanError(f"expected {name} to be a list of texts, got {value!r}")
    return tuple(value)


def _selectors(value: Any, name: str) -> tuple[str, ...]:
    selectors = _texts(value, name)
    for selector in selectors:
        check_selector(selector)
    return selectors
