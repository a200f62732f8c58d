"""Programs of a user's own, under the instruments: a training step, or a model with its loss and batches."""
