"""Where tensors come from and go to: safetensors files, torch files, NumPy archives, folders."""
