"""Accuracy of predictions: errors of recorded runs, by device and by technique."""
