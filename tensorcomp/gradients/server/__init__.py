"""Gradients as messages for a parameter server."""
