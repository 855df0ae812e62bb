from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time, nothing kept on disk; a slow machine is no failure.
settings.register_profile(
    "tensorcomp",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tensorcomp")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regen-golden",
        action="store_true",
        help="write tests/golden anew; only with a new format version, or for new cases",
    )
    parser.addoption(
        "--planted",
        default="one",
        choices=("one", "all"),
        help="how many bugs to plant in the kernels for the fuzzer to find",
    )


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
