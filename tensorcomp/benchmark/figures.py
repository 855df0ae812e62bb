"""Hold rates, errors and speeds of strategies, and R(D)."""

from __future__ import annotations

from dataclasses import dataclass

from tensorcomp._formatting import three_digits
from tensorcomp.metrics.gaussian_limit import Limit


@dataclass(frozen=True)
class StrategyRow:
    """Rate, error and speed of one strategy."""

    label: str
    family: str
    tree: str  # a template; empty for what the lossless planner chooses
    stored: float  # bytes of all tensors' blobs, those that stay lossless included
    bits: float  # of these per weight
    ratio: float  # bytes of all tensors / stored
    snr_db: float | None  # of all tensors that may lose something together; None if exact
    lowest_snr_db: float | None  # that of the tensor that lost most
    gap: float | None  # bits per weight above R(D) at this SNR; None if exact
    refused: int  # tensors coded losslessly, for the codec cannot, or not in fewer bytes
    encode_speed: float  # weights per second
    decode_speed: float
    loss: float | None = None  # predicted, of the tensors with statistics; None without any

    @property
    def rel_l2(self) -> float:
        """‖error‖ / ‖weights‖ of all tensors that may lose something; 0 if exact."""
        return 0.0 if self.snr_db is None else 10 ** (-self.snr_db / 20)


@dataclass(frozen=True)
class Benchmark:
    """Figures of all strategies on a checkpoint."""

    name: str  # of the file or folder
    profile: str  # says which tensors may lose something
    weights: int
    tensors: int
    input_bytes: int
    lossy_weights: int  # those that may lose something
    measured_weights: int  # those of them that were coded; all figures are estimated from them
    threads: int  # that coded tensors at once
    limit: Limit  # R(D), for one variance of each tensor
    rows: tuple[StrategyRow, ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether figures are estimated from a sample."""
        return self.measured_weights < self.lossy_weights

    @property
    def fixed_bits(self) -> float:
        """Bits of the tensors that stay lossless, per weight of the checkpoint."""
        return self.limit.fixed_bits / self.limit.all_weights


def millions(weights: float) -> str:
    """Return a number of weights, in millions if there are so many."""
    return f"{three_digits(weights / 1e6)} M" if weights >= 1e6 else f"{weights:,.0f}"
