"""Restorers of torch files and .npz archives from formats up to 7."""
