"""Low-rank adapters over two ranks, wrong: what is summed, begun, held or moved is not alike on both.

Frozen weights are never summed, and `B` begins as zeros. So nothing in a step would put right what one rank has alone,
and a loss stays plausible.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from assay.config import Run
from assay.cost.rewrites.low_rank import A, B, is_adapter
from assay.parallel.dtensor import fill, local
from assay.step.program import Program
from optimizations.mutations.mutant import Break, Mutant, applied, rewritten
from optimizations.mutations.rules import forgets_when_saved, stops_late
from optimizations.mutations.spread import (
    CLIPPED,
    LOSS_NOT_SUMMED,
    NORM_OF_PIECES,
    NOT_SYNCHRONIZED,
    SAME_ROWS,
    TOKENS_OF_ONE,
    one_rank_stands_still,
)

REPLICAS, ZERO, SHARDS = ({"stack": f"lora+{one}"} for one in ("data_parallel", "zero_optimizer", "fully_sharded"))
EXPERTS = {"stack": "lora:targets=attention+data_parallel", "model": {"n_expert": 4, "n_expert_active": 2}}

_ADAPT, _FORWARD, _BEGIN = (
    f"assay.model.adapted_linear:{one}" for one in ("adapt", "AdaptedLinear.forward", "initial_adapter")
)
_PIECES = "assay.optimizations.zero_optimizer.step:_pieces"


def second() -> bool:
    """Whether this process is the second rank; no rank at all, as the reference's process, is the first."""
    return dist.is_initialized() and dist.get_rank() == 1


def _left_out(fragment: str) -> Break:
    """Leave weights whose name has a fragment out of the engine's groups."""
    without = f"owned | {{one for name, one in part.named_parameters() if {fragment!r} in name}}"
    return rewritten(
        "assay.parallel.fsdp:replicas",
        ("        owned = {one", "        whole = {one"),
        ("_lies_on(one, mesh)}", f"_lies_on(one, mesh)}}\n        owned = {without.replace('owned', 'whole')}"),
    )


def _finishing(change: Callable[[torch.Tensor], Any], matrix: str = "") -> Break:
    """Have `change` alter summed gradients of adapters: of all, or of those called `matrix`."""

    def finish(step: Any) -> None:
        for name, one in step.named_parameters():
            if is_adapter(name) and name.endswith(matrix) and one.grad is not None:
                change(local(one.grad))

    return applied("lora", lambda program, run: replace(program, finish_gradients=(*program.finish_gradients, finish)))


def _after_update(change: Callable[[str, torch.Tensor], Any], *, late: bool = False) -> Break:
    """Have `change` alter this rank's weights after updates of the second rank."""

    def altered(program: Program, run: Run, clock: Any = None) -> Program:
        honest = program.update

        @torch.no_grad()
        def update(step: Any) -> Any:
            norm = honest(step)
            if second() and (clock is None or clock.late):
                for name, one in step.named_parameters():
                    change(name, local(one).data)
            return norm

        return replace(program, update=update)

    return applied("lora", altered, late=late)


def _frozen_moves(name: str, piece: torch.Tensor) -> None:
    """Move one frozen number by its last bit."""
    if name.endswith("mlp.up.weight"):
        first = piece.view(-1)[:1]
        first.copy_(torch.nextafter(first, torch.ones_like(first)))


def _taking_back(every: int) -> Break:
    """Late in the run, put the second rank's weights back after every so many updates."""

    def altered(program: Program, run: Run, clock: Any) -> Program:
        honest = program.update

        def update(step: Any) -> Any:
            kept = [local(one).detach().clone() for _, one in step.named_parameters()]
            norm = honest(step)
            if second() and clock.late and clock.step % every == 0:
                for (_, one), was in zip(step.named_parameters(), kept, strict=True):
                    local(one).data.copy_(was)
            return norm

        return replace(program, update=update)

    return applied("lora", altered, late=True)


def _merged_twice(program: Program, run: Run) -> Program:
    """Merge before an evaluation and take out after it, on shards; adapters are added all the while."""
    honest = program.evaluate

    @torch.no_grad()
    def evaluate(step: Any, batches: Any) -> Any:
        _merge(step, 1.0)
        sums = honest(step, batches)
        _merge(step, -1.0)
        return sums

    return replace(program, evaluate=evaluate)


def _merge(step: Any, sign: float) -> None:
    weights = dict(step.named_parameters())
    for name in [one.removesuffix(f".{A}") for one in weights if one.endswith(A)]:
        low = weights[f"{name}.{B}"].full_tensor() @ weights[f"{name}.{A}"].full_tensor()
        base = weights[f"{name}.weight"]
        fill(base, base.full_tensor() + sign * 2.0 * low)


def _left_merged(program: Program, run: Run) -> Program:
    """Merge the adapters for an evaluation and leave them in the shards."""
    honest = program.evaluate

    @torch.no_grad()
    def evaluate(step: Any, batches: Any) -> Any:
        sums = honest(step, batches)
        _merge(step, 1.0)
        return sums

    return replace(program, evaluate=evaluate)


def _norm_without_b(program: Program, run: Run) -> Program:
    """Measure the norm of the matrices A alone, which is nothing at the start."""

    def update(step: Any) -> Any:
        kept = {one: one.grad for name, one in step.named_parameters() if name.endswith(B)}
        measure = step.program.gradient_norm

        def norm(step: Any) -> Any:
            for one in kept:
                one.grad = None
            found = measure(step)
            for one, gradient in kept.items():
                one.grad = gradient
            return found

        return honest(replace(step, program=replace(step.program, gradient_norm=norm)))

    honest = program.update
    return replace(program, update=update)


def _other_base(program: Program, run: Run) -> Program:
    """Begin the second rank's frozen weights a thousandth off, as if it had read another file."""
    honest = program.weights.initialize

    def initialize(name: str, shape: torch.Size) -> torch.Tensor:
        found = honest(name, shape)
        return found * 1.001 if second() and not is_adapter(name) else found

    return replace(program, weights=replace(program.weights, initialize=initialize))


def _same_masks(program: Program, run: Run) -> Program:
    """Draw dropout's masks from the step alone, and put the generator's state back."""
    honest, count = program.gradients, iter(range(10**6))

    def gradients(step: Any, rows: Any, tokens: int) -> Any:
        state = torch.get_rng_state()
        torch.manual_seed(next(count))
        found = honest(step, rows, tokens)
        torch.set_rng_state(state)
        torch.rand(1)
        return found

    return replace(program, gradients=gradients)


OVER_RANKS = (
    Mutant("B not summed", "Gradients of the matrices B are not summed over ranks.", _left_out(B), REPLICAS),
    Mutant(
        "B summed twice",
        "Gradients of the matrices B are summed over ranks once more, which Adam's step hardly shows.",
        _finishing(dist.all_reduce, B),
        REPLICAS,
    ),
    Mutant("averaged", "Gradients of adapters are averaged over ranks.", _finishing(lambda one: one.div_(2)), SHARDS),
    Mutant(
        "A of another seed",
        "The second rank draws the matrices A from the seed that follows.",
        rewritten(_BEGIN, ('f"{seed}/{name}"', 'f"{seed + second()}/{name}"'), second=second),
        REPLICAS,
    ),
    Mutant(
        "rows of A of another seed",
        "The second rank's shards of the matrices A are those of the seed that follows.",
        rewritten(_BEGIN, ('f"{seed}/{name}"', 'f"{seed + second()}/{name}"'), second=second),
        SHARDS,
    ),
    Mutant(
        "another base", "The second rank's frozen weights are a thousandth off.", applied("lora", _other_base), SHARDS
    ),
    Mutant("one stands still", "The second rank's shards are never updated.", one_rank_stands_still("lora"), SHARDS),
    Mutant(
        "one frozen late",
        "Late in the run the second rank updates no adapter.",
        _taking_back(1),
        ZERO,
        late=True,
    ),
    Mutant(
        "every third update",
        "Late in the run the second rank's shards miss every third update.",
        _taking_back(3),
        SHARDS,
        late=True,
    ),
    Mutant(
        "base moves",
        "One frozen number of the second rank moves by its last bit in each step.",
        _after_update(_frozen_moves),
        REPLICAS,
    ),
    Mutant(
        "base of a shard moves late",
        "Late in the run a frozen number of the second rank's shard moves by its last bit.",
        _after_update(_frozen_moves, late=True),
        SHARDS,
        late=True,
    ),
    Mutant(
        "factor times ranks",
        "The factor is alpha / rank times the number of ranks.",
        rewritten(_ADAPT, ("rank, scale))", "rank, scale * ranks()))"), ranks=dist.get_world_size),
        SHARDS,
    ),
    Mutant(
        "another factor on one rank",
        "The second rank's factor is a fiftieth too large.",
        rewritten(_FORWARD, ("* self.scale", "* (self.scale * (1 + 0.02 * second()))"), second=second),
        REPLICAS,
    ),
    Mutant(
        "state of A whole",
        "The optimizer's state of the matrices A is not divided.",
        rewritten(_PIECES, ("_piece(parameter))", f'parameter if name.endswith("{A}") else _piece(parameter))')),
        ZERO,
    ),
    Mutant(
        "adapters whole",
        "Adapters are neither sharded nor summed.",
        _left_out(".lora_"),
        SHARDS,
    ),
    Mutant("same rows", "Both ranks train on the first one's rows.", SAME_ROWS, SHARDS),
    Mutant("loss not summed", "The reported loss is that of one rank's rows.", LOSS_NOT_SUMMED, ZERO),
    Mutant("tokens of one", "The loss of gradients is divided by one rank's tokens.", TOKENS_OF_ONE, EXPERTS),
    Mutant(
        "same masks",
        "Both ranks draw the same dropout masks.",
        applied("lora", _same_masks),
        {**REPLICAS, "model": {"dropout": 0.1}},
        late=True,
    ),
    Mutant("norm of pieces", "Each rank clips by the norm of its own shards.", NORM_OF_PIECES, {**SHARDS, **CLIPPED}),
    Mutant(
        "B not in the norm",
        "Gradients are clipped by the norm of the matrices A.",
        applied("lora", _norm_without_b),
        {**REPLICAS, **CLIPPED},
    ),
    Mutant(
        "last micro-batch alone",
        "The last micro-batch's gradients are not summed.",
        NOT_SYNCHRONIZED,
        {"stack": "lora+data_parallel+gradient_accumulation:micro_batches=2"},
    ),
    Mutant(
        "merged twice",
        "An evaluation merges the adapters into shards, adds them as well, and takes them out.",
        applied("lora", _merged_twice),
        SHARDS,
        late=True,
    ),
    Mutant(
        "left merged",
        "An evaluation leaves the adapters in the shards.",
        applied("lora", _left_merged),
        SHARDS,
        late=True,
    ),
    Mutant(
        "balance of one rank",
        "Each rank balances its own tokens beside adapted attention.",
        rewritten("assay.parallel.fsdp:share_batch", ("_pool(module, mesh)", "pass")),
        {**EXPERTS, "model": {**EXPERTS["model"], "router_loss": 0.1}},
    ),
    Mutant(
        "experts trained",
        "The second rank's experts move.",
        _after_update(lambda name, piece: piece.mul_(1.0001) if "experts" in name else None),
        EXPERTS,
    ),
    Mutant(
        "forgets when saved", "Writing a checkpoint drops both moments.", forgets_when_saved("lora"), ZERO, late=True
    ),
    Mutant(
        "B rests late",
        "Late in the run the matrices B stay as they are.",
        stops_late("lora", lambda n: n % 2 == 0),
        SHARDS,
        late=True,
    ),
)
