"""Build the step of a run and train with it: optimizer, schedule, loop, evaluation, checkpoints."""
