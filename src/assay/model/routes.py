"""Routing indices: from each token's chosen experts to rows sorted by expert, and back.

Without a limit every choice has a row, and the rows of an expert are contiguous (dropless, as in MegaBlocks,
arXiv:2211.15841). With a limit every expert has `places` rows. They are assigned in the order of the tokens, a token's
own choices in the order of its gates; later choices are dropped. GShard (arXiv:2006.16668) serves all first choices
before any second one. Here no later token takes an earlier one's place, so a sequence stays causal.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Routes:
    """Routing of n tokens with k choices each to E experts with M rows in all. Nothing is read by the host."""

    counts: Tensor
    """Number of times each expert was chosen, `[E]`, before any choice is dropped."""
    sources: Tensor
    """Token in each of the experts' rows, `[M]`, sorted by expert."""
    destinations: Tensor
    """Row of each choice's result, `[n·k]`."""
    ends: Tensor | None
    """End of each expert's rows, `[E]`, int32. None: all experts have equally many."""
    kept: Tensor | None
    """False for a dropped choice, whose destination is another choice's row, `[n, k]`. None: all are kept."""


def plan(chosen: Tensor, experts: int, places: int | None = None) -> Routes:
    """Return the routes for `chosen [n, k]`, each token's experts in the order of their gates.

    `places` is the number of rows of each expert, None for no limit.
    """
    choices = chosen.size(1)
    # Stable: within an expert, rows stay in the order of tokens, so that earlier tokens get the places.
    expert, order = chosen.flatten().sort(stable=True)
    destinations = order.argsort()
    ends = torch.searchsorted(expert, torch.arange(experts, device=chosen.device), right=True, out_int32=True)
    counts = ends.long().diff(prepend=ends.new_zeros(1).long())
    if places is None:
        return Routes(counts, order // choices, destinations, ends, None)
    starts = ends.long() - counts
    rank = torch.arange(len(order), device=chosen.device) - starts[expert]
    row = expert * places + rank.clamp(max=places - 1)
    # An unused place computes some other token, whose result is never read: cheaper than a row of zeros.
    taken = (starts[:, None] + torch.arange(places, device=chosen.device)).clamp(max=len(order) - 1)
    kept = (rank < places)[destinations].view_as(chosen)
    return Routes(counts, (order // choices)[taken.flatten()], row[destinations], None, kept)
