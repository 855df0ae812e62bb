"""Budgets: a limit on the error of each tensor, or on the bytes of the file.

A budget is one of two kinds. A bound (`max_rel_l2`, `min_snr`, `max_abs_error`,
`max_output_error`) holds for every tensor, on what is decoded. A size (`bits_per_weight`,
`target_ratio`, `target_size`) holds for the file, every byte counted; the error is then spread over
the tensors so that it hurts least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorcomp.errors import PlanError

_SIZES = ("bits_per_weight", "target_ratio", "target_size")
_MAX_SNR = 1000  # dB; float64 ends at 6,000
_MAX_BYTES = 1 << 62
NO_STATISTICS = "no statistics of it"  # reasons, here since reports import nothing heavier
NO_FEEDBACK = "without feedback, as "
_TEXTS = {
    "max_rel_l2": "rel-L2 ≤ {}",
    "min_snr": "SNR ≥ {} dB",
    "max_abs_error": "|error| ≤ {}",
    "max_output_error": "output error ≤ {}",
    "bits_per_weight": "{} bits per weight",
    "target_ratio": "a ratio of {}",
    "target_size": "{} bytes",
}


@dataclass(frozen=True)
class Bound:
    """The largest error that a tensor may have once it is decoded.

    Parameters
    ----------
    max_rel_l2 : float
        Of ‖x − x̂‖₂ / ‖x‖₂.
    max_abs_error : float
        Of max |x − x̂|.
    max_output_error : float
        Of the root of tr(E H Eᵀ) / tr(X H Xᵀ), E the error of X and H the second moments of what
        the tensor is multiplied with.

    Raises
    ------
    PlanError
        If any is below 0 or NaN.
    """

    max_rel_l2: float = math.inf
    max_abs_error: float = math.inf
    max_output_error: float = math.inf

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not _is_number(value) or not value >= 0:
                raise PlanError(f"expected {name} to be a number above 0, got {value!r:.200}")

    def used(self, rel_l2: float, max_abs_error: float, output_error: float = 0.0) -> float:
        """Return the share of the bound that errors use up; it holds if at most 1."""
        return max(
            _share(rel_l2, self.max_rel_l2),
            _share(max_abs_error, self.max_abs_error),
            _share(output_error, self.max_output_error),
        )

    def __str__(self) -> str:
        parts = []
        if self.max_rel_l2 < math.inf:
            parts.append(f"rel-L2 ≤ {self.max_rel_l2:.4g}")
        if self.max_abs_error < math.inf:
            parts.append(f"|error| ≤ {self.max_abs_error:.4g}")
        if self.max_output_error < math.inf:
            parts.append(f"output error ≤ {self.max_output_error:.4g}")
        return ", ".join(parts) or "no bound"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _share(error: float, most: float) -> float:
    if error == 0 or most == math.inf:
        return 0.0
    return error / most if most > 0 else math.inf


@dataclass(frozen=True)
class Budget:
    """One of seven limits; none of them means lossless.

    Parameters
    ----------
    max_rel_l2 : float, optional
        Of ‖x − x̂‖₂ / ‖x‖₂, for every tensor; above 0.
    min_snr : float, optional
        Signal-to-noise ratio in dB, −20 log₁₀ rel-L2, for every tensor.
    max_abs_error : float, optional
        Of max |x − x̂|, for every tensor; above 0.
    max_output_error : float, optional
        Relative, of every tensor of which there are statistics (see `Bound`); above 0.
    bits_per_weight : float, optional
        8 × the file's bytes / elements of all its tensors.
    target_ratio : float, optional
        The input's bytes / the file's bytes.
    target_size : int, optional
        Bytes of the file.

    Raises
    ------
    PlanError
        If more than one limit is given, or one is out of range.
    """

    max_rel_l2: float | None = None
    min_snr: float | None = None
    max_abs_error: float | None = None
    max_output_error: float | None = None
    bits_per_weight: float | None = None
    target_ratio: float | None = None
    target_size: int | None = None

    def __post_init__(self) -> None:
        given = self.given()
        if len(given) > 1:
            raise PlanError(f"expected one limit as a budget, got {' and '.join(given)}")
        for name, value in given.items():
            wanted = "a finite number above 0"
            if name == "min_snr":
                wanted = f"a number between ±{_MAX_SNR} dB"
                is_within = _is_number(value) and abs(value) <= _MAX_SNR
            else:
                is_within = _is_number(value) and 0 < value < math.inf
            if not is_within:
                raise PlanError(f"expected {name} to be {wanted}, got {value!r:.200}")

    def given(self) -> dict[str, float]:
        """Return the limit that is set, by its name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def is_size(self) -> bool:
        """Whether the limit is on the file and not on each tensor."""
        return any(name in _SIZES for name in self.given())

    @property
    def bound(self) -> Bound | None:
        """The bound of each tensor; None for a size, or where nothing is given."""
        if self.max_rel_l2 is not None:
            return Bound(max_rel_l2=self.max_rel_l2)
        if self.min_snr is not None:
            return Bound(max_rel_l2=10 ** (-self.min_snr / 20))
        if self.max_abs_error is not None:
            return Bound(max_abs_error=self.max_abs_error)
        if self.max_output_error is not None:
            return Bound(max_output_error=self.max_output_error)
        return None

    def size(self, input_bytes: int, weights: int) -> int | None:
        """Return the bytes the file may have, given the input's bytes and elements."""
        if self.bits_per_weight is not None:
            return int(min(self.bits_per_weight * weights / 8, _MAX_BYTES))
        if self.target_ratio is not None:
            return int(min(input_bytes / self.target_ratio, _MAX_BYTES))
        return None if self.target_size is None else int(self.target_size)

    def nearest(self, least: int, input_bytes: int, weights: int) -> str:
        """Return a possible size in the unit of the limit."""
        size = f"{least:,} bytes"
        if self.target_ratio is not None:
            return f"{size}, a ratio of {math.floor(100 * input_bytes / least) / 100:g}"
        if self.bits_per_weight is not None and weights:
            return f"{size}, {math.ceil(800 * least / weights) / 100:g} bits per weight"
        return size

    def __str__(self) -> str:
        for name, value in self.given().items():
            number = f"{value:,}" if name == "target_size" else f"{value:.6g}"
            return _TEXTS[name].format(number)
        return "lossless"


def budget_of(limits: object) -> Budget:
    """Return the budget of a table in a file: a limit's name and its value.

    Raises
    ------
    PlanError
        If it is not such a table.
    """
    if not isinstance(limits, dict) or not limits.keys() <= _TEXTS.keys():
        raise PlanError(f"expected a budget, a table of one of {', '.join(_TEXTS)}, got {limits!r}")
    return Budget(**limits)
