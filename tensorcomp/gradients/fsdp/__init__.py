"""Compress gradients of fully sharded models (FSDP2)."""
