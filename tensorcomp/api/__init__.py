"""Define the public functions, one per file."""
