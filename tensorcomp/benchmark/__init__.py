"""The verb bench: how codecs do on tensors of a checkpoint."""
