"""Compress gradients in the communication hook of DistributedDataParallel."""
