"""Read and restore torch files and NumPy archives."""
