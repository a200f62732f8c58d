"""The critical batch size: from a noise scale, a loss, or measured steps."""
