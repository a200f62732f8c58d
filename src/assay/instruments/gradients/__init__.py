"""Gradients of a trained model: their scale by module, their agreement between micro-batches, and their noise."""
