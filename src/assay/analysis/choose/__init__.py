"""Choice of a row: criteria, losses within a margin, ranks and trades, targets, learning rates, limits."""
