"""Choose the compressor of each tensor while training goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tensorcomp._expressions import Call
from tensorcomp.codecs.arguments import argument
from tensorcomp.gradients.base import Compressor, GradientSpec, Reduction, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.text import CompressorParser, parse_compressor
from tensorcomp.gradients.wrappers.schedules import Scheduler

DENSE = "dense"
MIN_ELEMENTS = 4096  # of a tensor that is worth compression
_FIRST = 8  # the step of the first decision
_CANDIDATES = ("topk(0.01, values=affine(8))", "affine(4, 128)", "affine(8, 128)", "fp16")
_PLAIN = Dense()


def default_candidates() -> dict[str, Compressor]:
    """Return the candidates that are tried where none are named, strongest first."""
    return {text: parse_compressor(text, feedback=False) for text in _CANDIDATES}


@dataclass(frozen=True)
class Adaptive(Scheduler):
    """Use for each tensor the candidate that all ranks chose; dense before that.

    Training times some steps of each of `plans`, keeps the fastest as `StepInfo.choices`, and
    repeats this when the link has changed, which it checks every `every` steps (`is_due`). With
    `ErrorFeedback` around it the residual is kept from one choice to the next.

    Parameters
    ----------
    candidates : mapping of str to Compressor
        Compressors without wrappers by their texts, strongest first. ``"dense"`` is one in any
        case.
    max_rel_l2 : float, optional
        The largest error of a payload, ‖g − ĝ‖₂ / ‖g‖₂; none by default.
    every : int
        Steps from one look at the link to the next.
    hysteresis : float
        Choices change if that saves more than this fraction of a step's time.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a candidate cannot be one.
    """

    id: ClassVar[str] = "adaptive"
    reduction: ClassVar[Reduction] = _PLAIN.reduction  # before any choice
    needs_feedback: ClassVar[bool] = True  # candidates may leave much out
    candidates: Mapping[str, Compressor] = field(default_factory=default_candidates)
    max_rel_l2: float | None = argument(None, least=0)
    every: int = argument(20, least=1)
    hysteresis: float = argument(0.1, least=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hysteresis == 1:
            raise ValueError("expected hysteresis to be below 1, got 1")
        for text, compressor in self.candidates.items():
            if isinstance(compressor, Scheduler):
                raise ValueError(f"{text} decides itself and cannot be a candidate")  # noqa: TRY004
            if getattr(compressor, "scale", False):
                raise ValueError(f"{text} scales up, which diverges with feedback; set scale=false")

    @classmethod
    def parse(cls, call: Call, parser: CompressorParser) -> Compressor:
        """Return the compressor of a text; arguments without a name are candidates."""
        named = tuple(argument for argument in call.arguments if argument.name)
        arguments = call._replace(arguments=named).bind(["max_rel_l2", "every", "hysteresis"])
        settings = {name: argument.plain for name, argument in arguments.items()}
        alone = replace(parser, feedback=False)
        texts = [argument for argument in call.arguments if not argument.name]
        if candidates := {one.expression: alone.argument(one) for one in texts}:
            settings["candidates"] = candidates
        return parser.with_feedback(call.made(cls, **settings))

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        """Return whether all candidates are unbiased."""
        return all(one.unbiased for one in self.candidates.values())

    def text(self) -> str:
        """Return the candidates and the bound."""
        bound = "" if self.max_rel_l2 is None else f", max_rel_l2={self.max_rel_l2!r}"
        settings = f"every={self.every}, hysteresis={self.hysteresis!r}"
        return f"adaptive({', '.join(self.candidates)}{bound}, {settings})"

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Return the candidate that was chosen for a tensor; dense if none was."""
        return self.candidates.get(info.choices.get(spec.name, DENSE), _PLAIN).at(info, spec)

    def is_due(self, step: int) -> bool:
        """Return whether to look at the link before a step.

        Parameters
        ----------
        step : int
            Optimizer steps before it. In the first ones buckets of DistributedDataParallel change
            and memory is touched for the first time: their times say nothing of later ones.
        """
        return step >= _FIRST and (step - _FIRST) % self.every == 0

    def plans(
        self,
        specs: Collection[GradientSpec],
        errors: Sequence[Mapping[str, Mapping[str, float]]],
    ) -> list[dict[str, str]]:
        """Return the choices to be timed, those of dense gradients first.

        There is one for each candidate. Where it breaks the bound, the next candidate that keeps it
        takes its place, and dense if none does. Tensors of fewer than `MIN_ELEMENTS` stay dense.

        Parameters
        ----------
        specs : collection of GradientSpec
        errors : sequence of mapping of str to mapping of str to float
            Of each rank by candidate, then by tensor; only looked at where there is a bound.
        """
        texts = [text for text in self.candidates if text != DENSE]
        bound = self.max_rel_l2

        def keeps(text: str, spec: GradientSpec) -> bool:
            return bound is None or all(
                one.get(text, {}).get(spec.name, bound + 1) <= bound for one in errors
            )

        large = {spec.name: spec for spec in specs if spec.size >= MIN_ELEMENTS}
        names = [spec.name for spec in specs]
        plans = [dict.fromkeys(names, DENSE)]
        for place in range(len(texts)):
            plan = dict.fromkeys(names, DENSE)
            for name, spec in large.items():
                plan[name] = next((t for t in texts[place:] if keeps(t, spec)), DENSE)
            if plan not in plans:
                plans.append(plan)
        return plans
