"""Factors of a study: their effects, their interactions, and whether single changes add up."""
