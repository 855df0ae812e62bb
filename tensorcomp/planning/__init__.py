"""Which tree for which tensor."""
