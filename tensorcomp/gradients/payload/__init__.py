"""Payloads, decoded gradients and states."""
