"""Floor 2: the in-tree plugins, one file each with its Args beside it."""
