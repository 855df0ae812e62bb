"""Choose the tree of every tensor: roles, profiles, budgets, trials, plans."""
