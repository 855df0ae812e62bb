"""Predict how long a training step takes on a given network."""
