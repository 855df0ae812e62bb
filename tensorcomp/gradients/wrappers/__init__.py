"""Compressors around a compressor."""
