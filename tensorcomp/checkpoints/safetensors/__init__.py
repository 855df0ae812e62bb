"""Read and restore safetensors files."""
