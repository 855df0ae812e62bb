import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regen-docs",
        action="store_true",
        help="write the commands' outputs in README.md and docs/ anew",
    )
