"""What the benchmarks share: inputs, peers, models, tables."""
