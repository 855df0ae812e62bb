"""Compressors around another compressor."""
