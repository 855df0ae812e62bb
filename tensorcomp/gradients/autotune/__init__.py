"""Choose compressors while training by the times of real steps."""
