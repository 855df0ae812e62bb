"""Record metrics of compression while training."""
