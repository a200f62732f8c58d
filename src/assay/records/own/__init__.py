"""Figures of programs of a user's own."""
