"""A mixture of experts in place of the MLP: each token goes through `n_expert_active` of `n_expert` MLPs.

    p = softmax(W·x) in float32;  y = Σ over the k largest pᵢ of gᵢ · expertᵢ(x)

The gates gᵢ are the chosen probabilities divided by their sum, as in GShard (arXiv:2006.16668) and Mixtral
(arXiv:2401.04088). With one active expert that quotient would be 1 for ever and the router would learn nothing from the
text, so there the gate is the probability itself, as in Switch (arXiv:2101.03961). The router computes in float32
under autocast, too (Switch, section 2.4).

Experts are stacked in tensors whose first dimension is the expert, so that they can be divided among ranks, and have no
biases whatever `bias` says, as in Mixtral: a grouped product takes none, and stacked they would decay like matrices.

Without `expert_capacity` no token is dropped: rows are sorted by expert and go through one grouped product
(MegaBlocks, arXiv:2211.15841). With it, an expert computes a fixed number of rows in training, and a token that finds
no place passes on the residual alone; in evaluation none is dropped, so that a loss does not depend on how windows are
gathered into batches.

Caveats: where torch has no grouped product (float64, float32 on a GPU, widths that are no multiple of 8) a loop over
the experts takes its place, which reads the group sizes to the host. A grouped product's backward refuses gradients
with stride 0; the gather behind the experts hands it whole ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.config import ModelConfig
from assay.hardware import AMPERE
from assay.model.balance import balance_loss, balanced
from assay.model.routes import Routes, plan

_GROUPED_ON_CPU = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Routing:
    """What one forward in training did, as tensors on the device."""

    tokens: Tensor
    """`[E]`: how often each expert was chosen."""
    dropped: Tensor
    """How many choices found no place, a scalar."""
    balance: Tensor
    """The load-balancing loss without its coefficient, a scalar; 1 where all is even."""


class MixtureMLP(nn.Module):
    """`[B, T, n_embd] → [B, T, n_embd]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.router = nn.Linear(config.n_embd, config.n_expert or 1, bias=False)
        self.experts = Experts(config)
        self.dropout = nn.Dropout(config.dropout)
        self.pooled: Callable[[Tensor], Tensor] = _alone
        """`[E]` choices of these tokens → of all tokens of the batch, where several ranks share it."""
        self.watcher: Callable[[Routing], None] | None = None
        """Told of each forward in training, once: not when it is recomputed."""

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
        """`[n, n_embd] → [n, E]`, float32 or wider."""
        wide = torch.promote_types(rows.dtype, torch.float32)
        with torch.autocast(rows.device.type, enabled=False):
            return F.linear(rows.to(wide), self.router.weight.to(wide)).softmax(dim=-1)

    @torch.no_grad()
    def _shares(self, probabilities: Tensor, routes: Routes) -> Tensor | None:
        """`[E]`: each expert's share of the batch's choices; None where nobody asks."""
        if not self.training or (self.config.router_loss == 0 and self.watcher is None):
            return None
        counts = self.pooled(routes.counts)
        return counts.to(probabilities.dtype) / counts.sum()

    def _gates(self, probabilities: Tensor, chosen: Tensor, routes: Routes, shares: Tensor | None) -> Tensor:
        """`[n, k]`: the weights of a token's experts, 0 for one that dropped it."""
        if shares is not None and self.config.router_loss > 0 and probabilities.requires_grad:
            probabilities = balanced(probabilities, shares, self.config.router_loss)
        gates = probabilities.gather(1, chosen)
        if chosen.size(1) > 1:
            gates = gates / gates.sum(dim=1, keepdim=True)
        return gates if routes.kept is None else gates * routes.kept

    @torch.no_grad()
    def _tell(self, probabilities: Tensor, routes: Routes, places: int | None, shares: Tensor | None) -> None:
        if self.watcher is None or shares is None or torch._C._current_graph_task_id() != -1:
            return
        limit = routes.counts if places is None else routes.counts.clamp(max=places)
        balance = balance_loss(probabilities, shares)
        self.watcher(Routing(routes.counts, (routes.counts - limit).sum(), balance))


class Experts(nn.Module):
    """E MLPs of one shape, each applied to rows of its own: `[M, n_embd] → [M, n_embd]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        experts, hidden, width = config.n_expert or 1, config.hidden, config.n_embd
        self.aligned = config.experts_aligned
        gated = config.activation == "swiglu"
        self.activation = nn.SiLU() if gated else nn.GELU("tanh" if config.activation == "gelu_tanh" else "none")
        self.gate = _stacked(config, experts, hidden, width) if gated else None
        self.up = _stacked(config, experts, hidden, width)
        self.down = _stacked(config, experts, width, hidden)

    def forward(self, rows: Tensor, ends: Tensor | None) -> Tensor:
        """`rows` sorted by expert, `ends [E]` where each expert's end; None: all have equally many."""
        if self.gate is None:
            inner = self.activation(self._product(rows, self.up, ends))
        else:
            inner = self.activation(self._product(rows, self.gate, ends)) * self._product(rows, self.up, ends)
        return self._product(inner, self.down, ends)

    def _product(self, rows: Tensor, weight: Tensor, ends: Tensor | None) -> Tensor:
        """Each row times the `[out, in]` matrix of its expert, in the dtype of the rows."""
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
    """One device sees the whole batch."""
    return counts


def _held(weight: Tensor) -> Tensor:
    """This rank's piece, for no sharding of grouped products is known to torch."""
    # Only a spread tensor has the method, and importing its class to ask would cost more than a second.
    return weight.to_local() if hasattr(weight, "to_local") else weight


def _stacked(config: ModelConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(shape), std=config.init_std))


def _lowered(rows: Tensor) -> Tensor:
    """Under autocast its dtype, once for all products: autocast does not know the grouped one."""
    device = rows.device.type
    return rows.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else rows


def _has_grouped(rows: Tensor) -> bool:
    """Whether torch multiplies such rows by group in one operator, and differentiates it."""
    if not hasattr(F, "grouped_mm"):
        return False
    if rows.device.type == "cuda":
        return rows.dtype == torch.bfloat16 and torch.cuda.get_device_capability(rows.device) >= AMPERE
    return rows.device.type == "cpu" and rows.dtype in _GROUPED_ON_CPU
