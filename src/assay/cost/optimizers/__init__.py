"""Optimizers as the ledger sees them: the state of each parameter, and the temporaries of its update."""
