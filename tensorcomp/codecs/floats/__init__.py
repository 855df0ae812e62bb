"""Floats told apart into sign, exponent and mantissa."""
