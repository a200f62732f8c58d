"""Defaults of a text that is drawn from a model, by `assay sample` and at the end of a run.

Both must agree, so that the text of a record is the beginning of what the command writes. Nothing is imported here, for
the command's help must not wait for torch.
"""

PROMPT = "\n"
TOKENS = 200
"""Tokens that are added."""
TEMPERATURE = 0.8
SEED = 0
