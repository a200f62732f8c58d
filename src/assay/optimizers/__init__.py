"""Optimizers as recipes: torch's own, and those that torch has not, each made from the live parameters of a step."""
