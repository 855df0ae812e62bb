"""Let training frameworks keep their checkpoints in a `Series`."""
