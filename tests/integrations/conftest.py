"""What hosts are tested with; without them (tests/ecosystem.txt) only the hook itself is tested."""

import importlib.util
import os
from collections.abc import Iterator

import pytest
from object_store import ObjectStore, object_store

from tensorcomp import hub

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

collect_ignore = []
if importlib.util.find_spec("transformers") is None:
    collect_ignore += [
        "test_transformers.py",
        "test_other_hosts.py",
        "test_import_order.py",
        "test_calibrate_transformers.py",
        "test_series_trainer.py",
    ]
if importlib.util.find_spec("lightning") is None:
    collect_ignore += ["test_series_lightning.py"]
if any(importlib.util.find_spec(name) is None for name in ("moto", "s3fs", "boto3")):
    collect_ignore += [
        "test_object_store.py",
        "test_object_store_reading.py",
        "test_object_store_stops.py",
        "test_object_store_writing.py",
        "test_parts_in_object_store.py",
    ]
if importlib.util.find_spec("playwright") is None:
    collect_ignore += ["test_report_in_browser.py"]
if importlib.util.find_spec("distributed") is None:
    # Several ranks take minutes: they are tested in the environment of hosts alone.
    collect_ignore += ["test_dask_executor.py", "test_dcp_ranks.py"]


@pytest.fixture(scope="session")
def _s3_server() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def s3(_s3_server: ObjectStore) -> Iterator[ObjectStore]:
    """Return an empty bucket of an S3 server; the environment says where it is."""
    _s3_server.clear()
    yield _s3_server
    _s3_server.clear()


@pytest.fixture(autouse=True)
def _hook_is_off() -> Iterator[None]:
    yield
    hub.disable()
