"""Matrices as products and rotations."""
