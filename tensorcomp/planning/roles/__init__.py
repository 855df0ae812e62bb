"""What a tensor is in its network: its role."""
