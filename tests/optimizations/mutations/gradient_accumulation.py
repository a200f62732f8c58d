"""Accumulation of gradients, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten

_GRADIENTS, _CUT = "assay.training.build:gradients", "assay.training.batches:cut"
_TOTAL = "total = loss.detach() if total is None else total + loss.detach()"
_CHUNKS = "zip(ids.chunk(parts), targets.chunk(parts), strict=True)"
_SCALED = "scale(loss / tokens)"


def _then(line: str) -> tuple[str, str]:
    """Between two micro-batches, do something with each gradient `p.grad`."""
    between = "if micro_batch is not micro_batches[-1]:"
    return (
        _TOTAL,
        f"{_TOTAL}\n        {between}\n            for _, p in step.named_parameters():\n                {line}",
    )


MUTANTS = (
    Mutant(
        "gradients zeroed",
        "Gradients are cleared between micro-batches, so only the last one counts.",
        rewritten(_GRADIENTS, _then("p.grad = None")),
    ),
    Mutant(
        "divided by too few",
        "Each loss is divided by the tokens of its micro-batch, so gradients are four times too large.",
        rewritten(_GRADIENTS, (_SCALED, "scale(loss / micro_batch[1].numel())")),
    ),
    Mutant(
        "divided twice",
        "Each loss is divided by the number of micro-batches once more.",
        rewritten(_GRADIENTS, (_SCALED, "scale(loss / tokens / len(micro_batches))")),
    ),
    Mutant(
        "last one dropped",
        "The last micro-batch is not trained on.",
        rewritten(_GRADIENTS, ("for micro_batch in micro_batches:", "for micro_batch in micro_batches[:-1]:")),
    ),
    Mutant(
        "the first again and again",
        "Every micro-batch is the first one.",
        rewritten(_CUT, (_CHUNKS, f"list({_CHUNKS})[:1] * parts")),
    ),
    Mutant(
        "loss of the last",
        "The reported loss is that of the last micro-batch.",
        rewritten(_GRADIENTS, (_TOTAL, "total = loss.detach() * len(micro_batches)")),
    ),
    Mutant(
        "sums in 16 bits",
        "Gradients are rounded to bfloat16 between micro-batches.",
        rewritten(_GRADIENTS, _then("p.grad = p.grad.bfloat16().float()")),
    ),
    Mutant(
        "same noise",
        "Every micro-batch has the same dropout masks.",
        rewritten(
            _GRADIENTS,
            ("    for micro_batch in", "    noise = torch.get_rng_state()\n    for micro_batch in"),
            ("loss = summed_loss", "torch.set_rng_state(noise)\n            loss = summed_loss"),
        ),
        {"model": {"dropout": 0.1}},
    ),
    Mutant(
        "one part",
        "The batch is sent through in two parts in place of four.",
        rewritten(
            "assay.optimizations.gradient_accumulation:GradientAccumulation.apply",
            ("program.micro_batches * self.micro_batches", "2"),
        ),
    ),
    Mutant(
        "zeroed late",
        "Late in the run gradients are cleared between micro-batches.",
        rewritten(_GRADIENTS, _then("p.grad = None"), late=True),
        late=True,
    ),
)
