"""Exchange gradients as messages, for training without a process group."""
