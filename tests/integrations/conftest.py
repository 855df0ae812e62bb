"""What hosts are tested with; without them (tests/ecosystem.txt) only the hook itself is tested."""

import importlib.util
import os
from collections.abc import Iterator

import pytest

from tensorcomp import hub

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

if importlib.util.find_spec("transformers") is None:
    collect_ignore = [
        "test_transformers.py",
        "test_other_hosts.py",
        "test_import_order.py",
        "test_calibrate_transformers.py",
    ]


@pytest.fixture(autouse=True)
def _hook_is_off() -> Iterator[None]:
    yield
    hub.disable()
