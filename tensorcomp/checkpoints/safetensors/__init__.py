"""Safetensors files: header, tensors, shards."""
