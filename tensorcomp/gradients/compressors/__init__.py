"""Compressors of one gradient."""
