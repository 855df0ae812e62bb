"""Our own file: a safetensors file of blobs, and the manifest that says what they decode to."""
