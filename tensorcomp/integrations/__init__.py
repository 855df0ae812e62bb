"""Read and write compressed checkpoints inside other libraries."""
