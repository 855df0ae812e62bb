"""Compressors by id: our own, and those of packages that announce them by entry points."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tensorcomp import gradients
from tensorcomp.errors import GradientError
from tensorcomp.gradients import Compressor, GradientSpec, compressor_class, compressor_ids
from tensorcomp.gradients.text import label, parse_compressor

SOURCE = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.gradients import Compressor, Payload
from tensorcomp.gradients.payload.decoded import DenseGradient


@dataclass(frozen=True)
class Constant(Compressor):
    """Send the mean of all elements."""

    id: ClassVar[str] = "{name}"
    times: float = 1.0

    def text(self):
        return f"{self.id}({self.times!r})"

    def step(self, gradient, state):
        payload = Payload(np.float64(gradient.mean() * self.times).tobytes(), state.spec)
        return payload, state

    def receive(self, payload):
        spec = payload.spec
        return DenseGradient(np.full(spec.size, np.frombuffer(payload.data)[0], spec.dtype))
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that puts a package with a compressor on the path."""

    def run(package: str, *, announced: str = "mean", named: str = "mean") -> None:
        root = tmp_path / package
        information = root / f"{package}-1.0.dist-info"
        information.mkdir(parents=True)
        (root / f"{package}.py").write_text(SOURCE.replace("{name}", named))
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\n")
        (information / "entry_points.txt").write_text(
            f"[tensorcomp.compressors]\n{announced} = {package}:Constant\n"
        )
        monkeypatch.syspath_prepend(root)

    compressor_class.cache_clear()
    yield run
    compressor_class.cache_clear()


def subclasses(base: type) -> set[type]:
    return {base}.union(*(subclasses(one) for one in base.__subclasses__()))


def test_every_compressor_with_an_id_is_registered():
    for module in pkgutil.walk_packages(gradients.__path__, f"{gradients.__name__}."):
        importlib.import_module(module.name)
    ours = {one for one in subclasses(Compressor) if one.__module__.startswith("tensorcomp.")}
    named = {one.id: one for one in ours if one.id}
    assert set(compressor_ids()) == set(named)
    for name, found in named.items():
        assert compressor_class(name) is found


def test_a_package_adds_a_compressor(install):
    with pytest.raises(GradientError, match="no codec is called 'mean'"):
        parse_compressor("mean")
    compressor_class.cache_clear()
    install("mean_one")
    assert "mean" in compressor_ids()
    assert "mean_one" not in sys.modules  # listing ids imports nothing
    compressor = parse_compressor("owners(mean(2.0))", feedback=False)
    assert label(compressor) == "owners(mean(2.0))"
    spec = GradientSpec("w", (2,))
    payload, _ = compressor.step(np.float32([1, 3]), compressor.init(spec))
    assert compressor.decode(payload).tolist() == [4.0, 4.0]


def test_a_package_may_not_take_over_an_id_of_ours(install):
    install("mean_two", announced="dense", named="dense")
    assert parse_compressor("dense") == gradients.Dense()
    assert "mean_two" not in sys.modules


def test_two_packages_may_not_share_an_id(install):
    install("mean_three")
    install("mean_four")
    with pytest.raises(GradientError, match="several packages have a compressor 'mean'"):
        parse_compressor("mean")


def test_the_entry_point_must_name_the_compressors_id(install):
    install("mean_five", named="median")
    with pytest.raises(GradientError, match="gives a compressor whose id is 'median'"):
        parse_compressor("mean")
