"""Models of the user's own: as the one part of a program, and their blocks."""
