"""Models of the user's own."""
