"""Selection of weights to prune, on arrays, without torch."""
