"""Rules: trees that the user names for tensors, by role, by name or for all.

A rule is ``SELECTOR=TREE``. The selector is a role (``attention``, ``linear``), a tensor's name or
a pattern of names (``encoder.*.weight``), or ``all``. The first rule that selects a tensor counts.
A role or a name asks for the tensor by name, protected or not; ``all`` leaves out what the profile
protects and small tensors. The tree may be a template (see `steps`).
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from tensorcomp.errors import PlanError
from tensorcomp.planning.roles.classify import is_selector, matches_role
from tensorcomp.planning.steps import check_template

_RULE = re.compile(r"\s*([^=()]*?)\s*=\s*(.*)", re.DOTALL)
EVERYTHING = "all"


@dataclass(frozen=True)
class Rule:
    """A tree for the tensors that a selector names.

    Parameters
    ----------
    selector : str
    tree : str
        A tree's text or template.
    """

    selector: str
    tree: str

    def selects(self, name: str, role: str) -> bool:
        """Return whether the rule is for a tensor."""
        if self.selector == name:
            return True
        if self.selector == EVERYTHING or is_selector(self.selector):
            return matches_role(self.selector, role)
        return fnmatch.fnmatchcase(name, self.selector)

    @property
    def by_name(self) -> bool:
        """Whether the rule asks for tensors by name or role, and not for all."""
        return self.selector != EVERYTHING


def parse_rule(text: str) -> Rule:
    """Return the rule of a text ``SELECTOR=TREE``, or of a tree alone, which is for all.

    Raises
    ------
    PlanError
        If the tree cannot be understood.
    """
    match = _RULE.fullmatch(text)
    selector, tree = match.groups() if match else (EVERYTHING, text.strip())
    if not selector or not tree:
        raise PlanError(f"a rule is SELECTOR=TREE, or a tree for all; got {text!r}")
    check_template(tree)
    return Rule(selector, tree)
