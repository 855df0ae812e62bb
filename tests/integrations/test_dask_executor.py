"""A Dask cluster of two processes, one of which is killed half-way."""

import os
import signal
import threading
import time
from pathlib import Path

import distributed
import pytest
from sharded_models import contents, make_shards

import tensorcomp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_worker_is_killed_and_every_shard_is_made(tmp_path: Path):
    model = make_shards(tmp_path / "m", 10)
    serial = tensorcomp.compress(model, tmp_path / "serial")
    reports = tmp_path / "m.tc.partial" / "reports"
    killed = []

    def kill(process: int) -> None:
        while len(list(reports.glob("*.json"))) < 2:
            time.sleep(0.005)
        os.kill(process, signal.SIGKILL)
        killed.append(process)

    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=0,
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor(pure=False) as executor,
    ):
        process = next(iter(client.run(os.getpid).values()))
        killer = threading.Thread(target=kill, args=(process,), daemon=True)
        killer.start()
        done = tensorcomp.compress(model, executor=executor)
        killer.join(10)
    assert killed
    assert contents(done.path) == contents(serial.path)
    assert len(done.files) == 12
