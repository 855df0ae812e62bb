#!/usr/bin/env bash
# Compress the example losslessly and in four bits a weight; show perplexity before and after.
# Usage: bash compress.sh [FOLDER OF tensorcomp AND python]
set -euo pipefail
bin=$(cd "${1:-.venv/bin}" && pwd)
cd "$(dirname "$0")"
"$bin/tensorcomp" compress model.safetensors --force
"$bin/tensorcomp" compress model.safetensors --profile transformer --bits-per-weight 4 \
    -o model.4bit.tc.safetensors --force
"$bin/python" evaluate.py model.safetensors model.tc.safetensors model.4bit.tc.safetensors
