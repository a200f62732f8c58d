"""Programs of a user's own."""
