"""Low-rank adapters, wrong."""

from dataclasses import replace

import torch

from assay.model.adapted_linear import AdaptedLinear
from optimizations.mutations.lora_over_ranks import OVER_RANKS
from optimizations.mutations.lora_packed import PACKED
from optimizations.mutations.mutant import LAST, Mutant, applied, rewritten

_ADAPT, _FORWARD, _BEGIN = (
    f"assay.model.adapted_linear:{one}" for one in ("adapt", "AdaptedLinear.forward", "initial_adapter")
)


def _with_trained_head(program, run):  # type: ignore[no-untyped-def]
    for part in program.parts:
        part.get_parameter("embedding.token.weight").requires_grad_(True)
    return program


def _with_resting(program, run, clock):  # type: ignore[no-untyped-def]
    honest = program.update

    def update(step):  # type: ignore[no-untyped-def]
        resting = [one for name, one in step.named_parameters() if clock.late and name.endswith("lora_A")]
        before = [one.detach().clone() for one in resting]
        norm = honest(step)
        for one, was in zip(resting, before, strict=True):
            one.data.copy_(was)
        return norm

    return replace(program, update=update)


def _with_merging(program, run):  # type: ignore[no-untyped-def]
    honest = program.evaluate

    @torch.no_grad()
    def evaluate(step, batches):  # type: ignore[no-untyped-def]
        sums = honest(step, batches)
        for layer in (one for part in step.parts for one in part.modules() if isinstance(one, AdaptedLinear)):
            layer.weight += layer.scale * layer.lora_B @ layer.lora_A
        return sums

    return replace(program, evaluate=evaluate)


MUTANTS = (
    Mutant(
        "no factor",
        "The factor alpha / rank is left out.",
        rewritten(_FORWARD, (" * self.scale", "")),
    ),
    Mutant(
        "alpha alone",
        "The adapter's result is multiplied by alpha, and not by alpha / rank.",
        rewritten(_ADAPT, ("rank, scale))", "rank, rank * scale))")),
    ),
    Mutant(
        "embedding trained",
        "The embedding, which is the head's weight as well, is not frozen.",
        applied("lora", _with_trained_head),
    ),
    Mutant(
        "nothing frozen",
        "All weights are trained beside the adapters.",
        rewritten(_ADAPT, ("requires_grad_(False)", "requires_grad_(True)")),
    ),
    Mutant(
        "one layer forgotten",
        "The last block's adapters are missing.",
        rewritten(_ADAPT, ("if name in layers", 'if "blocks.3" not in name and name in layers')),
    ),
    Mutant(
        "B is not zero",
        "Both matrices begin as random ones, so the first step is not that of the given model.",
        rewritten(_BEGIN, ("name.endswith(B)", "False")),
    ),
    Mutant(
        "A is zero, too",
        "Both matrices begin as zeros, so neither ever has a gradient.",
        rewritten(_BEGIN, ("name.endswith(B)", "True")),
    ),
    Mutant(
        "half the rank",
        "The adapters have half of the rank that was asked for.",
        rewritten(_ADAPT, ("AdaptedLinear(layer, rank,", "AdaptedLinear(layer, rank // 2,")),
    ),
    Mutant(
        "only A is trained",
        "The matrices B are frozen as well.",
        rewritten(
            _ADAPT,
            ("setattr(part.get_submodule(parent), own, ", "setattr(part.get_submodule(parent), own, half("),
            ("rank, scale))", "rank, scale)))"),
            half=lambda layer: (layer.lora_B.requires_grad_(False), layer)[1],
        ),
    ),
    Mutant(
        "adapter cut off late",
        "Late in the run the adapters' results are no longer added.",
        rewritten(_FORWARD, ("return plain + ", "return plain + 0 * "), late=True),
        late=True,
    ),
    Mutant(
        "frozen results scaled late",
        "Late in the run the frozen layer's result is a thousandth too large.",
        rewritten(_FORWARD, ("return plain + ", "return 1.001 * plain + "), late=True),
        late=True,
    ),
    Mutant(
        "alpha and rank exchanged",
        "The factor is rank / alpha.",
        rewritten(_ADAPT, ("rank, scale))", "rank, 1 / scale))")),
    ),
    Mutant(
        "factor not in backward",
        "Forward has the factor, and gradients of adapters are those of a factor of 1.",
        rewritten(
            _FORWARD,
            (
                "return plain + F.linear(F.linear(x, self.lora_A) * self.scale, self.lora_B)",
                "own = F.linear(F.linear(x, self.lora_A), self.lora_B)\n"
                "    return plain + own + (own * (self.scale - 1)).detach()",
            ),
        ),
    ),
    Mutant(
        "A without a name",
        "All matrices A of one shape begin with the same numbers.",
        rewritten(_BEGIN, ('f"{seed}/{name}"', 'f"{seed}"')),
    ),
    Mutant(
        "A rests",
        "From step 3 on the matrices A stay as they are.",
        applied("lora", _with_resting, late=True, since=3),
        late=True,
    ),
    Mutant(
        "merged in an evaluation",
        "An evaluation merges the adapters, and leaves them in the weights.",
        applied("lora", _with_merging),
        late=True,
    ),
    Mutant(
        "slightly larger factor in the last step",
        "From step 7 on the factor is a fiftieth too large.",
        rewritten(_FORWARD, ("* self.scale", "* (1.02 * self.scale)"), late=True, since=LAST),
        late=True,
    ),
    *PACKED,
    *OVER_RANKS,
)
