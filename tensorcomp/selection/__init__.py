"""Which weights to prune: on arrays, without torch."""
