"""Sentences on how each number of a study of scaling is made."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.scaling.studied.answer import ScalingAnswer


def meanings(found: "ScalingAnswer") -> list[tuple[str, str]]:
    """Return the name of each number with how it is made."""
    record = found.record
    evaluated = [one.result for one in record.cells if one.result.val_targets]
    targets = f"{evaluated[0].val_targets:,} of {evaluated[0].val_split_targets:,}" if evaluated else "some"
    error = max((one.val_standard_error or 0.0 for one in evaluated), default=0.0)
    counted = (
        "every distinct weight; the tied embedding counts once"
        if all(one.parameters == one.total for one in found.points)
        else "all weights but the embeddings of tokens and positions"
    )
    return [
        ("parameters N", f"{counted}. The points have both counts."),
        ("tokens D", "steps × tokens of a step. A run may see its text several times; epochs say how often."),
        ("FLOPs C", "6·N·D. The points also have FLOPs operator by operator, as the estimator counts them."),
        (
            "loss",
            f"mean over {targets} held-out tokens after the last step, the same for every run. As an estimate for "
            f"all of them it has a standard error of at most {error:.4f}. All runs share this error, so it "
            "moves their losses together, and hardly their law.",
        ),
        (
            "law",
            f"L = {found.law.law.form.formula}, by Huber's loss of log L with δ = {found.law.fit.delta:g}, on the "
            "fitted runs only.",
        ),
        (
            "95 % interval",
            "of one new loss: the bootstrap of the law with its residuals, and at least the errors of hold-outs among "
            "the fitted runs at this distance in compute.",
        ),
        (
            "learning rate",
            "the base's × a power of the width × a power of the steps. At one budget the smallest and the largest size "
            f"also train at half and at twice of it. Losses that differ by less than {record.loss_margin:g} nats count "
            "as the same.",
        ),
        ("schedule", "warm-up over an equal share of the steps, then a cosine that ends with each run."),
    ]
