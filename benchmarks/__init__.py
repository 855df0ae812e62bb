"""Benchmarks: one script per question, each with its peers in the same run."""
