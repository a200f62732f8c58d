"""Autograd's engine as code that runs inside it sees it: which backward pass runs on this thread."""

import torch


def backward_id() -> int | None:
    """Return the number of the backward pass that runs on this thread; None outside of any."""
    number = torch._C._current_graph_task_id()
    return None if number == -1 else number


def in_backward() -> bool:
    """True while the autograd engine runs on this thread, also while a checkpoint repeats its forward there."""
    return backward_id() is not None
