"""Pruning of checkpoints that are files."""
