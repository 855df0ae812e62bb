"""Quantization and pruning with statistics of what layers read, against peers."""
