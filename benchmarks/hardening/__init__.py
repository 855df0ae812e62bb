"""Faults at scale: damaged files, and bounds of sampled tensors."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What tests damage files by, and the trees and golden files that they damage.
sys.path += [str(ROOT / "tests" / room) for room in ("kernels", "container", "contract", "golden")]
