"""Programs of a user's own, measured and compared."""
