"""The snippets of the README's section on gradients run as they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

README = Path(__file__).resolve().parents[2] / "README.md"
_SECTION = re.compile(r"^## Gradients$(.*?)^## ", re.DOTALL | re.MULTILINE)
_SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


def _snippets() -> list[str]:
    section = _SECTION.search(README.read_text("utf-8"))
    assert section is not None
    return _SNIPPET.findall(section[1])


def _trained(snippet: str, folder: str) -> list[int]:
    import os

    import torch
    from torch.nn.parallel import DistributedDataParallel

    def train(model: Any, optimizer: Any) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 64)).square().mean().backward()
            optimizer.step()

    os.chdir(folder)
    steps = []
    for resumed in (False, True):
        model = torch.nn.Linear(64, 70)
        names = {
            "DistributedDataParallel": DistributedDataParallel,
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            "rank": torch.distributed.get_rank(),
            "resumed": resumed,
            "scaler": None,
            "torch": torch,
            "train": train,
        }
        exec(snippet, names)
        steps.append(names["compression"].steps)
    return steps


def test_training_runs_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert ranks.run(_trained, _snippets()[0], str(tmp_path)) == [[3, 6], [3, 6]]


def test_compressors_are_plain_functions() -> None:
    gradient = np.random.default_rng(0).standard_normal((40, 50), dtype=np.float32)
    names: dict[str, Any] = {"gradient": gradient}
    exec(_snippets()[1], names)
    assert len(names["payload"].data) < gradient.nbytes / 50
    assert np.count_nonzero(names["decoded"]) == 20
    assert names["mean"].shape == gradient.shape
