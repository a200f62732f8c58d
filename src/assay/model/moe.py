"""A mixture of experts in place of the MLP: each token is processed by `n_expert_active` of `n_expert` MLPs.

    p = softmax(W·x) in float32;  y = Σ over the k largest pᵢ of gᵢ · expertᵢ(x)

The gates gᵢ are the chosen probabilities divided by their sum, as in GShard (arXiv:2006.16668) and Mixtral
(arXiv:2401.04088). With one active expert that quotient would always be 1, and the router would learn nothing from the
text. The gate is then the probability itself, as in Switch (arXiv:2101.03961). The router computes in float32 also
under autocast (Switch, section 2.4).

Experts are stacked in tensors whose first dimension is the expert, so that they can be divided among ranks. They have
no biases, whatever the value of `bias`, as in Mixtral: a grouped product takes none, and stacked biases would decay
like matrices.

Without `expert_capacity` no token is dropped: rows are sorted by expert and multiplied in one grouped product
(MegaBlocks, arXiv:2211.15841). With it, an expert computes a fixed number of rows in training. A token without a row
passes through the residual connection alone. In evaluation no token is dropped, so that a loss does not depend on how
windows are grouped into batches.

Caveats: torch has no grouped product for float64, float32 on a GPU, and widths that are not a multiple of 8. A loop
over the experts then replaces it, which reads the group sizes to the host. A grouped product's backward refuses
gradients with stride 0; the gather after the experts gives it contiguous ones.

Routing indices lead from each token's chosen experts to rows sorted by expert, and back. Without a limit every choice
has a row, and the rows of an expert are contiguous (dropless, as in MegaBlocks, arXiv:2211.15841). With a limit every
expert has `places` rows. They are assigned in the order of the tokens, a token's own choices in the order of its gates;
later choices are dropped. GShard (arXiv:2006.16668) serves all first choices before any second one. Here no later token
takes an earlier one's place, so a sequence stays causal.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.config import ModelConfig
from assay.hardware import AMPERE
from assay.model.activation import build_activation
from assay.model.backward import in_backward
from assay.model.balance import add_balance_loss, balance_loss


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


_GROUPED_ON_CPU = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Routing:
    """Routing statistics of one forward in training, as tensors on the device."""

    tokens: Tensor
    """Number of times each expert was chosen, `[E]`, dropped choices included."""
    dropped: Tensor
    """Number of dropped choices, a scalar."""
    balance: Tensor
    """Load-balancing loss without its coefficient, a scalar; 1 if all is even."""


class MixtureMLP(nn.Module):
    """Router and experts, `[B, T, n_embd] → [B, T, n_embd]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.router = nn.Linear(config.n_embd, config.n_expert or 1, bias=False)
        self.experts = Experts(config)
        self.dropout = nn.Dropout(config.dropout)
        self.pooled: Callable[[Tensor], Tensor] = _alone
        """Choices `[E]` of this rank's tokens → choices of all tokens of the batch, if several ranks share it."""
        self.watcher: Callable[[Routing], None] | None = None
        """Called once for each forward in training, but not for a recomputed one."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        probabilities = self._probabilities(rows)
        chosen = probabilities.detach().topk(self.config.n_expert_active).indices
        places = self.config.expert_places(len(rows)) if self.training else None
        routes = plan(chosen, probabilities.size(1), places)
        shares = self._shares(probabilities, routes)
        self._tell(probabilities, routes, places, shares)
        gates = self._gates(probabilities, chosen, routes, shares)
        y = self.experts(_lowered(rows).index_select(0, routes.sources), routes.ends)
        y = y.index_select(0, routes.destinations).view(*chosen.shape, -1)
        return self.dropout((y * gates.unsqueeze(-1)).sum(dim=1).view(x.shape))

    def _probabilities(self, rows: Tensor) -> Tensor:
        """Return the router's probabilities, `[n, n_embd] → [n, E]`, float32 or wider."""
        wide = torch.promote_types(rows.dtype, torch.float32)
        with torch.autocast(rows.device.type, enabled=False):
            return F.linear(rows.to(wide), self.router.weight.to(wide)).softmax(dim=-1)

    @torch.no_grad()
    def _shares(self, probabilities: Tensor, routes: Routes) -> Tensor | None:
        """Return each expert's share `[E]` of the batch's choices; None if neither the loss nor a watcher needs it."""
        if not self.training or (self.config.router_loss == 0 and self.watcher is None):
            return None
        counts = self.pooled(routes.counts)
        return counts.to(probabilities.dtype) / counts.sum()

    def _gates(self, probabilities: Tensor, chosen: Tensor, routes: Routes, shares: Tensor | None) -> Tensor:
        """Return the gates `[n, k]` of each token's experts, 0 for an expert that dropped it."""
        if shares is not None and self.config.router_loss > 0 and probabilities.requires_grad:
            probabilities = add_balance_loss(probabilities, shares, self.config.router_loss)
        gates = probabilities.gather(1, chosen)
        if chosen.size(1) > 1:
            gates = gates / gates.sum(dim=1, keepdim=True)
        return gates if routes.kept is None else gates * routes.kept

    @torch.no_grad()
    def _tell(self, probabilities: Tensor, routes: Routes, places: int | None, shares: Tensor | None) -> None:
        if self.watcher is None or shares is None or in_backward():
            return
        limit = routes.counts if places is None else routes.counts.clamp(max=places)
        balance = balance_loss(probabilities, shares)
        self.watcher(Routing(routes.counts, (routes.counts - limit).sum(), balance))


class Experts(nn.Module):
    """E MLPs of one shape, each applied to its own rows: `[M, n_embd] → [M, n_embd]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        experts, hidden, width = config.n_expert or 1, config.hidden, config.n_embd
        self.aligned = config.experts_aligned
        gated = config.activation == "swiglu"
        self.activation = build_activation(config)
        self.gate = _stacked(config, experts, hidden, width) if gated else None
        self.up = _stacked(config, experts, hidden, width)
        self.down = _stacked(config, experts, width, hidden)

    def forward(self, rows: Tensor, ends: Tensor | None) -> Tensor:
        """Apply the experts to `rows`, sorted by expert; `ends [E]` are the ends of their rows, None if all equal."""
        if self.gate is None:
            inner = self.activation(self._product(rows, self.up, ends))
        else:
            inner = self.activation(self._product(rows, self.gate, ends)) * self._product(rows, self.up, ends)
        return self._product(inner, self.down, ends)

    def _product(self, rows: Tensor, weight: Tensor, ends: Tensor | None) -> Tensor:
        """Multiply each row by the `[out, in]` matrix of its expert, in the dtype of the rows."""
        weight = _held(weight).to(rows.dtype)
        if ends is None:
            parts = rows.view(len(weight), -1, rows.size(1))
            return torch.bmm(parts, weight.transpose(1, 2)).flatten(0, 1)
        if self.aligned and _has_grouped(rows):
            return F.grouped_mm(rows, weight.transpose(1, 2), offs=ends)
        sizes = ends.diff(prepend=ends.new_zeros(1)).tolist()
        pairs = zip(torch.split(rows, sizes), weight.unbind(), strict=True)
        return torch.cat([part @ matrix.t() for part, matrix in pairs])


def _alone(counts: Tensor) -> Tensor:
    """Return the counts unchanged: one device has the whole batch."""
    return counts


def _held(weight: Tensor) -> Tensor:
    """Return this rank's shard, because torch cannot shard grouped products."""
    # Only a DTensor has the method, and importing its class for a type check would cost more than a second.
    return weight.to_local() if hasattr(weight, "to_local") else weight


def _stacked(config: ModelConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(shape), std=config.init_std))


def _lowered(rows: Tensor) -> Tensor:
    """Cast rows to autocast's dtype if it is on, once for all products: it does not cover the grouped product."""
    device = rows.device.type
    return rows.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else rows


def _has_grouped(rows: Tensor) -> bool:
    """True if torch has a differentiable grouped product for such rows."""
    if not hasattr(F, "grouped_mm"):
        return False
    if rows.device.type == "cuda":
        return rows.dtype == torch.bfloat16 and torch.cuda.get_device_capability(rows.device) >= AMPERE
    return rows.device.type == "cpu" and rows.dtype in _GROUPED_ON_CPU
