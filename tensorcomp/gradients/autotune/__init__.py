"""Choosing a compressor while training by measured times."""
