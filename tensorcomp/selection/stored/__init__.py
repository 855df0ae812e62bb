"""Prune checkpoints that are files."""
