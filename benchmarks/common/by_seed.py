"""Accuracies of several seeds, and what is said of them."""

from statistics import mean, stdev


class BySeed:
    """What rows of a benchmark with a field ``accuracies``, one a seed, share."""

    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean over the seeds."""
        return mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Return the sample standard deviation over the seeds."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0
