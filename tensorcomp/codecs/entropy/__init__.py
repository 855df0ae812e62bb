"""Integers and bytes as fewer bytes: entropy coders, packing, runs."""
