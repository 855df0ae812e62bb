"""Torch and npz files as typed arrays."""
