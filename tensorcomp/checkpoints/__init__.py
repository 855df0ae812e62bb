"""Read and restore checkpoints: safetensors, torch, NumPy archives, folders."""
