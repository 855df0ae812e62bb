"""Compressors without wrappers."""
