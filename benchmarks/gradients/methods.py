"""The ways to send gradients whose accuracy is compared."""

from dataclasses import dataclass

from benchmarks.gradients.tasks import TASKS, Rule
from tensorcomp.gradients import Compressor, parse_compressor
from tensorcomp.gradients.wrappers.schedules import RATIOS, Warmup

# The smallest rates that come within 0.2 points of the best one for dense gradients, on validation
# digits, in the mean of both sets of digits, of 0.025 to 0.4 (SGD) and 5e-4 to 8e-3 (Adam).
SGD_RATE = 0.05
ADAM_RATE = 4e-3
MOMENTUM = 0.9

_SGD = Rule("sgd", SGD_RATE, MOMENTUM)
_INSIDE = Rule("sgd", SGD_RATE)  # for momentum inside the compressor
_ADAM = Rule("adam", ADAM_RATE)


@dataclass(frozen=True)
class Method:
    """A way to send gradients, and the optimizer that they are for.

    Parameters
    ----------
    name : str
    compressor : str
        As `tensorcomp.gradients.parse_compressor` takes it.
    feedback : bool
        Whether errors are fed back.
    rule : Rule
    dense, falling : float
        The shares of the steps that are sent dense at first, and with falling ratios then
        (`tensorcomp.gradients.wrappers.schedules.RATIOS`).
    within : float or None
        Points below dense gradients that are claimed at most; None where nothing is.
    tasks : tuple of str
        What it is tried on: fewer, to save time.
    """

    name: str
    compressor: str
    feedback: bool = False
    rule: Rule = _SGD
    dense: float = 0.0
    falling: float = 0.0
    within: float | None = None
    tasks: tuple[str, ...] = tuple(TASKS)

    def compressor_for(self, steps: int) -> Compressor:
        """Make the compressor for a training of so many steps."""
        compressor = parse_compressor(self.compressor, feedback=self.feedback)
        if self.dense or self.falling:
            each = round(self.falling * steps / len(RATIOS))
            compressor = Warmup(compressor, round(self.dense * steps), steps_each=each)
        return compressor


_DIGITS = ("digits",)
SGD = Method("dense", "dense")
ADAM = Method("Adam: dense", "dense", rule=_ADAM, tasks=_DIGITS)
_INT8 = "topk(0.01, values=affine(8))"
_DGC = f"dgc(0.001, momentum={MOMENTUM})"
METHODS = (
    SGD,
    Method("int8", "int8", within=0.2),
    Method("int4", "int4", within=0.2),
    Method("int2", "int2", tasks=_DIGITS),
    Method("QSGD, 4 bits", "qsgd(4)", tasks=_DIGITS),
    Method("PowerSGD, rank 4, feedback", "powersgd(4)", feedback=True, tasks=_DIGITS),
    Method("top-k 1 %, int8", _INT8, tasks=_DIGITS),
    Method("top-k 1 %, int8, feedback", _INT8, feedback=True, within=0.3),
    Method("top-k 0.1 %", "topk(0.001)"),
    Method("top-k 0.1 %, feedback", "topk(0.001)", feedback=True),
    Method(
        "top-k 0.1 %, feedback, ratio falling",
        "topk(0.001)",
        feedback=True,
        falling=0.2,
        tasks=_DIGITS,
    ),
    Method("top-k 0.1 %, DGC at once", _DGC, feedback=True, rule=_INSIDE, tasks=_DIGITS),
    Method("top-k 0.1 %, DGC", _DGC, feedback=True, rule=_INSIDE, falling=0.2, within=0.3),
    Method(
        "top-k 0.1 %, DGC, small tensors dense",
        f"per_role({_DGC})",
        feedback=True,
        rule=_INSIDE,
        falling=0.2,
    ),
    Method("random-k 1 %, unbiased", "randomk(0.01)", tasks=_DIGITS),
    Method("random-k 1 %, feedback", "randomk(0.01, scale=false)", feedback=True),
    Method("sign", "sign", tasks=_DIGITS),
    Method("sign, feedback", "sign", feedback=True, tasks=_DIGITS),
    ADAM,
    Method("Adam: int8", "int8", rule=_ADAM, tasks=_DIGITS),
    Method("Adam: top-k 1 %, int8", _INT8, rule=_ADAM, tasks=_DIGITS),
    Method("Adam: top-k 1 %, int8, feedback", _INT8, feedback=True, rule=_ADAM, tasks=_DIGITS),
    Method(
        "Adam: the same, 15 % of steps dense first",
        _INT8,
        feedback=True,
        rule=_ADAM,
        dense=0.15,
        tasks=_DIGITS,
    ),
    Method("Adam: top-k 0.1 %, feedback", "topk(0.001)", feedback=True, rule=_ADAM, tasks=_DIGITS),
)
