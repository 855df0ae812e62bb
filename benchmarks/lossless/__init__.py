"""Size and speed without loss."""
