"""Where tokens go: from each token's chosen experts to rows sorted by expert and back, as integers only.

Without a limit every choice has a row, and an expert's rows lie together, as many as it was chosen for (dropless, as in
MegaBlocks, arXiv:2211.15841). With a limit every expert has `places` rows; they are given in the order of the tokens,
a token's own choices in the order of its gates, and who comes later is dropped. GShard (arXiv:2006.16668) serves all
first choices before any second one; here no later token takes an earlier one's place, so a sequence stays causal.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Routes:
    """The way of n tokens with k choices each through E experts that see M rows in all. No number leaves the device."""

    counts: Tensor
    """`[E]`: how often each expert was chosen, before any is dropped."""
    sources: Tensor
    """`[M]`: the token in each of the experts' rows, sorted by expert."""
    destinations: Tensor
    """`[n·k]`: the row in which each choice finds its result."""
    ends: Tensor | None
    """`[E]`, int32: where each expert's rows end. None: they have equally many."""
    kept: Tensor | None
    """`[n, k]`: False where a choice was dropped and its destination is another's. None: all are kept."""


def plan(chosen: Tensor, experts: int, places: int | None = None) -> Routes:
    """The routes for `chosen [n, k]`, expert indices by token in the order of their gates."""
    choices = chosen.size(1)
    # Stable: within an expert rows stay in the order of tokens, which is what gives places to the earlier ones.
    expert, order = chosen.flatten().sort(stable=True)
    destinations = order.argsort()
    ends = torch.searchsorted(expert, torch.arange(experts, device=chosen.device), right=True, out_int32=True)
    counts = ends.long().diff(prepend=ends.new_zeros(1).long())
    if places is None:
        return Routes(counts, order // choices, destinations, ends, None)
    starts = ends.long() - counts
    rank = torch.arange(len(order), device=chosen.device) - starts[expert]
    row = expert * places + rank.clamp(max=places - 1)
    # A place that nobody takes computes some other token, whose result nobody reads: cheaper than a row of zeros.
    taken = (starts[:, None] + torch.arange(places, device=chosen.device)).clamp(max=len(order) - 1)
    kept = (rank < places)[destinations].view_as(chosen)
    return Routes(counts, (order // choices)[taken.flatten()], row[destinations], None, kept)
