"""Low-rank adapters, wrong."""

from optimizations.mutations.mutant import Mutant, applied, rewritten

_ADAPT, _FORWARD, _BEGIN = (
    f"assay.model.adapted_linear:{one}" for one in ("adapt", "AdaptedLinear.forward", "initial_adapter")
)


def _with_trained_head(program, run):  # type: ignore[no-untyped-def]
    for part in program.parts:
        part.get_parameter("embedding.token.weight").requires_grad_(True)
    return program


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
)
