"""Approaches that fit an optimum and no loss: the envelope of training curves, and parabolas at equal compute."""
