"""Checkpoints beside their relatives: fine-tunes, saves of a training run, optimizer state."""
