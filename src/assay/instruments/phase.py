"""The phase of a step to which the running operator belongs.

It follows from where the operator runs. Inside the program's update or an optimizer's step it is `update`. Inside the
autograd engine it is `backward`, or `recompute` if a checkpoint repeats its forward. Elsewhere it is `forward`.
"""

import torch

from assay.model.backward import in_backward
from assay.records.trace import Phase

_OF_A_CHECKPOINT = "_recomputation_hook"
"""Torch's name of the hook that receives the tensors saved by a recomputed forward."""


def current_phase(*, updating: bool) -> Phase:
    """Return the phase of an operator that runs now; the caller knows whether an update is running."""
    if updating:
        return "update"
    if in_backward():
        return "recompute" if runs_again() else "backward"
    return "forward"


def runs_again() -> bool:
    """True if a checkpoint is recomputing its forward; valid only inside the autograd engine.

    Only recomputation enables gradients there. An autograd function that it calls disables them, so the hook that
    receives saved tensors is checked as well.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return torch.is_grad_enabled() or (hooks is not None and _OF_A_CHECKPOINT in getattr(hooks[0], "__qualname__", ""))
