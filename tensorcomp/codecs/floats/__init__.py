"""Floats cut into sign, exponent and mantissa."""
