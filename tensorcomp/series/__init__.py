"""Store many checkpoints of one training run: each step as what changed."""
