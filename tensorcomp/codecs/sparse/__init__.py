"""Weights set to zero: which ones, and how they are written."""
