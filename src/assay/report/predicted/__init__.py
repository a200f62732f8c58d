"""Predictions without a run as text: what fits, inference, the cost of a training, and scaling laws."""
