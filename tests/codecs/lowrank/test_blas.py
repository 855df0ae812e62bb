from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from tensorcomp.codecs.lowrank.blas import one_thread


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_threads_that_come_and_go_leave_the_number_as_it_was():
    before, meet = blas_threads(), Barrier(4)

    def work(index: int) -> set[int]:
        with one_thread():
            found = blas_threads()
            meet.wait(30)
            np.linalg.eigh(np.eye(64) * (index + 1))
        return found

    with ThreadPoolExecutor(4) as pool:
        assert all(threads == {1} for threads in pool.map(work, range(4)))
    assert blas_threads() == before


def test_it_is_lifted_after_an_error():
    before = blas_threads()
    with pytest.raises(np.linalg.LinAlgError), one_thread():
        np.linalg.inv(np.zeros((2, 2)))
    assert blas_threads() == before
