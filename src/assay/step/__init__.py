"""The seams of a training step, and parts of a step that several techniques share."""
