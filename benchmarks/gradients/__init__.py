"""Gradients on the wire, their accuracy and speed."""
