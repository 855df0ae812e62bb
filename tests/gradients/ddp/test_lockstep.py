import threading
from collections.abc import Callable

import numpy as np

from tensorcomp.gradients.base import GradientSpec, Phases, State
from tensorcomp.gradients.ddp.summing import Ended, in_lockstep
from tensorcomp.gradients.payload.decoded import EmptyGradient

STATE = State(GradientSpec("w", (1,)))


def phases(*arrays: np.ndarray, seen: list[np.ndarray] | None = None) -> Phases:
    """Yield arrays one after the other; the mean is the sum of their means' sums."""
    total = 0.0
    for array in arrays:
        mean = yield array
        assert mean.shape == array.shape
        assert mean.dtype == array.dtype
        if seen is not None:
            seen.append(mean.copy())
        total += float(mean.sum())
    return np.array([total]), EmptyGradient(), STATE


def on_ranks(
    world: int, work: Callable[[int, Callable[[np.ndarray], np.ndarray]], list[Ended] | None]
) -> tuple[list[list[Ended] | None], list[int]]:
    """Run something on threads that average with each other; also return the sizes averaged."""
    given: list[np.ndarray] = [np.empty(0)] * world
    barrier = threading.Barrier(world, timeout=20)
    results: list[list[Ended] | None] = [None] * world
    sizes = []

    def run(rank: int) -> None:
        def average(array: np.ndarray) -> np.ndarray:
            given[rank] = array
            barrier.wait()
            mean: np.ndarray = (np.sum(given, axis=0) / world).astype(array.dtype)
            barrier.wait()
            if rank == 0:
                sizes.append(array.size)
            return mean

        results[rank] = work(rank, average)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return results, sizes


def test_each_phase_of_all_tensors_is_averaged_at_once():
    seen: dict[tuple[int, str], list[np.ndarray]] = {}

    def work(rank: int, average: Callable[[np.ndarray], np.ndarray]) -> list[Ended] | None:
        one = np.full((2, 3), rank, np.float32)
        two = np.full(4, 10 * rank, np.float32)
        return in_lockstep(
            [
                phases(one, two, seen=seen.setdefault((rank, "a"), [])),
                phases(two, seen=seen.setdefault((rank, "b"), [])),
                phases(),
            ],
            average,
        )

    results, sizes = on_ranks(3, work)
    assert sizes == [2 * 3 + 4 + 1, 4]  # one of them tells whether all values are finite
    for rank in range(3):
        assert [mean.tolist() for mean in seen[rank, "a"]] == [[[1.0] * 3] * 2, [10.0] * 4]
        assert [mean.tolist() for mean in seen[rank, "b"]] == [[10.0] * 4]
        ended = results[rank]
        assert ended is not None
        assert [float(mean[0]) for mean, _, _ in ended] == [46.0, 40.0, 0.0]


def test_one_rank_that_is_not_finite_stops_all():
    def work(rank: int, average: Callable[[np.ndarray], np.ndarray]) -> list[Ended] | None:
        array = np.ones(5, np.float32)
        return in_lockstep([phases(array, array)], average, nonfinite=rank == 2)

    results, sizes = on_ranks(4, work)
    assert results == [None] * 4
    assert sizes == [6]


def test_without_tensors_ranks_still_tell_each_other():
    results, sizes = on_ranks(2, lambda rank, average: in_lockstep([], average))
    assert results == [[], []]
    assert sizes == [1]
