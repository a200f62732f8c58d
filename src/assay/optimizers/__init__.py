"""Optimizers as recipes: torch's own, and others that torch lacks, each built from the live parameters of a step."""
