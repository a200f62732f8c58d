"""Common parts of techniques over several ranks: mesh coordinates, shards, norms across axes, a shared batch."""
