"""The schedule that is stable and then falls in a line, wrong.

It is no technique, and each step of a run holds it against a slow schedule. The run has groups with other rates.
"""

from optimizations.mutations.mutant import Mutant, rewritten

RUN = {
    "model": {"tie_embeddings": False},
    "training": {"schedule": "wsd", "decay_fraction": 0.5, "steps": 8, "warmup_steps": 2},
    "stack": "mup:base_width=8",
}
"""The rate falls in the last three steps of the small run."""

_LINE, _START = (f"assay.training.learning_rate:{one}" for one in ("stable_then_linear", "decay_start"))

MUTANTS = (
    Mutant(
        "begins to fall early",
        "The rate begins to fall one step early.",
        rewritten(_LINE, ("decay_start(training),", "decay_start(training) - 1,")),
        late=True,
    ),
    Mutant(
        "at the minimum early",
        "The last step has the minimum, and not the step after it.",
        rewritten(_LINE, ("training.decay_steps or training.steps", "(training.decay_steps or training.steps) - 1")),
        late=True,
    ),
    Mutant(
        "share without warm-up",
        "The rate falls in a share of the steps after the warm-up.",
        rewritten(_START, ("training.decay_fraction * end", "training.decay_fraction * (end - training.warmup_steps)")),
        late=True,
    ),
    Mutant(
        "by the root",
        "The rate falls as one less the root of the steps.",
        rewritten(_LINE, ("(end - step) / (end - start)", "(1 - ((step - start) / (end - start)) ** 0.5)")),
        late=True,
    ),
    Mutant(
        "down to zero",
        "The rate falls in a line to zero, and to the minimum after it.",
        rewritten(_LINE, ("low + (peak - low) * (end", "peak * (end")),
        late=True,
    ),
    Mutant(
        "along a cosine",
        "The rate falls along half a cosine, and not in a line.",
        rewritten(
            _LINE, ("(end - step) / (end - start)", "(0.5 + 0.5 * math.cos(math.pi * (step - start) / (end - start)))")
        ),
        late=True,
    ),
    Mutant(
        "in pairs",
        "The rate falls at each second step only.",
        rewritten(_LINE, ("* (end - step)", "* (end - step // 2 * 2)")),
        late=True,
    ),
    Mutant(
        "never falls",
        "The rate stays at its peak to the end.",
        rewritten(_LINE, ("step <= start", "step < end")),
        late=True,
    ),
    Mutant(
        "a dip",
        "The rate of one stable step is a tenth lower.",
        rewritten(_LINE, ("return peak if", "return peak * (0.9 if step == start else 1.0) if")),
        late=True,
    ),
    Mutant(
        "a little high",
        "The stable rate is a thousandth too high.",
        rewritten(_LINE, ("return peak if", "return 1.001 * peak if")),
        late=True,
    ),
    Mutant(
        "warm-up from zero",
        "The rate of the first step is zero.",
        rewritten("assay.training.build:schedule", ("(step + 1) / (warmup + 1)", "step / (warmup + 1)")),
    ),
    Mutant(
        "first group only",
        "The rate of the optimizer's first group alone falls.",
        rewritten(
            "assay.training.loop:take",
            ("in step.optimizer.param_groups:", "in step.optimizer.param_groups[: 1 if index > 4 else None]:"),
        ),
        late=True,
    ),
)
