"""The compiled loops. Only `codecs` calls them; importing this package imports nothing heavy.

Kernels are plain functions on flat NumPy arrays, compiled by Numba on first use and cached on disk.
They allocate only scratch space of a size that their arguments fix, and stay in bounds whatever the
bytes that they are given: a position read from a stream is clamped before it is used.
"""
