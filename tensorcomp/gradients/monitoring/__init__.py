"""Figures of compression while training."""
