"""Accuracy, size, exactness and speed of pruning."""
