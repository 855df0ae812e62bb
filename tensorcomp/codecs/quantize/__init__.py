"""Real numbers as codes: grids, trellises, codebooks."""
