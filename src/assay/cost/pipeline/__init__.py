"""Pipelines: schedules, the stages of a decoder, and the share of time in which a stage waits."""
