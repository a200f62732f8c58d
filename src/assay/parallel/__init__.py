"""What techniques over several ranks have in common: places on the mesh, shards, norms across axes, a batch shared."""
