"""The verb sparsity: where a checkpoint is sparse and what that saves."""
