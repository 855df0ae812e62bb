"""Measures of what decoding returns beside what was encoded."""
