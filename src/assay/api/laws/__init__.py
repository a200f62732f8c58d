"""Laws of loss for programs: what can be fitted, fits, predictions, and their results."""
