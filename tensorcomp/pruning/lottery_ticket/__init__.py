"""Lottery tickets: prune and rewind, round by round."""
