"""Compress and decode a rank's part of ``torch.distributed.checkpoint``."""
