"""Roles of tensors in their network."""
