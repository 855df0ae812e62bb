"""Shared by the benchmarks: inputs, peers, models, tables."""
