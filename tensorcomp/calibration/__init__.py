"""Statistics of torch models, measured by running them on data."""
