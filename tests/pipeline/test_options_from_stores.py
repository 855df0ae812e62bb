"""Files that say how to compress, in object stores."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save, save_file

import tensorcomp
from tensorcomp import Budget
from tensorcomp.errors import MissingFileError
from tensorcomp.io.locations import location
from tensorcomp.planning import profiles


def test_profiles_and_importance_are_read_from_stores(tmp_path: Path):
    weights = np.random.default_rng(0).standard_normal((2, 64, 256), np.float32)
    save_file({"a": weights[0], "b": weights[1]}, path := tmp_path / "model.safetensors")
    importance = save({"a": np.full(1, 9, np.float32), "b": np.ones(1, np.float32)})
    (tmp_path / "i.safetensors").write_bytes(importance)
    location("memory://asked/i.safetensors").write_bytes(importance)
    text = Path(profiles.__file__).with_name("profiles").joinpath("mlp.toml").read_text()
    location("memory://asked/p.toml").write_text(text)

    def made(**options: object) -> bytes:
        budget = Budget(bits_per_weight=4)
        return tensorcomp.compress(path, force=True, budget=budget, **options).path.read_bytes()

    wanted = made(importance=tmp_path / "i.safetensors")
    assert wanted != made()
    for url in ("memory://asked/i.safetensors", location("memory://asked/i.safetensors")):
        assert made(importance=url) == wanted
    assert tensorcomp.plan(path, profile="memory://asked/p.toml").plan.tensors


@pytest.mark.parametrize("options", [{"plan": "plan.json"}, {"profile": "p.toml"}])
def test_what_is_not_there_is_named(tmp_path: Path, options: dict[str, str]):
    save_file({"a": np.zeros((2, 3), np.float32)}, path := tmp_path / "model.safetensors")
    urls = {name: f"memory://absent/{file}" for name, file in options.items()}
    with pytest.raises(MissingFileError, match=r"memory://absent/.*there is no such file"):
        tensorcomp.compress(path, **urls)
