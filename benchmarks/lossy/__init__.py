"""Rate and distortion, and what is left of a model."""
