"""Gradient compression for torch's DistributedDataParallel, by its communication hook."""
