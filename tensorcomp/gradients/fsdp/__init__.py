"""Gradient compression for FSDP2."""
