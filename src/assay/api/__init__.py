"""Functions that programs and the command line call.

import assay

result = assay.train("shakespeare-char-cpu", "training.steps=200", optimizations="sdpa_attention+bf16_mixed")
print(result.val_loss, result.memory.tensors_peak_bytes, result.evidence)
"""

from assay.api import runs, study
from assay.api.configuration import DEFAULT, Source, Stack, configure
from assay.api.estimating import estimate, estimate_every_rank, project
from assay.api.measuring import anatomy
from assay.api.study import compare
from assay.api.training import Listener, train

__all__ = [
    "DEFAULT",
    "Listener",
    "Source",
    "Stack",
    "anatomy",
    "compare",
    "configure",
    "estimate",
    "estimate_every_rank",
    "project",
    "runs",
    "study",
    "train",
]
