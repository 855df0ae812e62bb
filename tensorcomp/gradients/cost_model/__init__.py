"""How long a step takes on a given network."""
