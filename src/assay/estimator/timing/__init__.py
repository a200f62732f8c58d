"""The time of a step: a roofline, timed steps of few blocks, several ranks, and pipelines."""
