"""Run tasks on an executor; those that its workers lose are run again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)

from tensorcomp._formatting import counted
from tensorcomp._log import LOGGER
from tensorcomp.errors import CheckpointError, OptionError, TensorcompError
from tensorcomp.pipeline.shard_task import ShardTask, run_remotely
from tensorcomp.pipeline.summary import FileResult

_RETRIES = 2
_PAUSE = 0.5  # seconds before another try: a worker that is being ended may still hold the file


def run_tasks(
    executor: Executor, tasks: Sequence[ShardTask], done: Callable[[ShardTask], None]
) -> list[tuple[FileResult, bool]]:
    """Return what `run_task` returns of each task.

    A task whose worker died, or that failed by an `OSError`, is run twice more. Where an executor
    is broken by that, what is left is run in this process.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    tasks : sequence of ShardTask
    done : callable
        Is given each task when it is done.

    Raises
    ------
    TensorcompError
        Of a task, at once: another try would end so, too.
    CheckpointError
        If a task failed otherwise, and all tries are used up.
    OptionError
        If the executor takes no tasks.
    """
    results: dict[int, tuple[FileResult, bool]] = {}
    failed: Counter[int] = Counter()
    pending: dict[Future[tuple[FileResult, bool]], int] = {}
    left = sorted(range(len(tasks)), key=lambda index: -tasks[index].nbytes)
    try:
        while left or pending:
            for index in left:
                try:
                    pending[_submit(executor, tasks[index])] = index
                except BrokenExecutor:
                    lost = counted(len(tasks) - len(results), "shard")
                    LOGGER.warning("the workers are lost: %s are compressed in this process", lost)
                    executor = ThreadPoolExecutor(1)
                    pending[_submit(executor, tasks[index])] = index
            left = []
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                index = pending.pop(future)
                try:
                    results[index] = future.result()
                    done(tasks[index])
                except TensorcompError:
                    raise
                except Exception as error:
                    failed[index] += 1
                    if failed[index] > _RETRIES:
                        raise CheckpointError(
                            f"failed {_RETRIES + 1} times on workers: {str(error) or repr(error)}",
                            path=tasks[index].source,
                        ) from error
                    LOGGER.warning("%s: compressed again, after %r", tasks[index].source, error)
                    left.append(index)
            if left:
                time.sleep(_PAUSE)
    finally:
        for future in pending:
            future.cancel()
    return [results[index] for index in range(len(tasks))]


def _submit(executor: Executor, task: ShardTask) -> Future[tuple[FileResult, bool]]:
    try:
        return executor.submit(run_remotely, task)
    except BrokenExecutor:
        raise
    except Exception as error:  # RuntimeError of one that is shut down, others of other libraries
        raise OptionError(
            f"expected an executor that takes tasks, got {executor!r:.99}: {error}; give another"
        ) from error
