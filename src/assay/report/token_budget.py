"""A run's budget of tokens as text."""

from collections.abc import Iterator
from typing import Any

from assay.launch.token_budget import TokenBudget
from assay.report.kit.blocks import Block, Table
from assay.report.kit.view import Shown
from assay.units import format_count, format_seconds

_DERIVED = ("steps_per_epoch", "tokens", "epochs", "tokens_per_parameter", "optimal_steps")


class TokenBudgetView(Shown[TokenBudget]):
    """A run's budget of tokens, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield a table, and sentences on repeated text and on the number of tokens per parameter."""
        from assay.launch.token_budget import TOKENS_PER_PARAMETER

        budget = self.found
        yield Table.of(("budget of tokens", budget.corpus), _rows(budget).items())
        yield from budget.remarks
        if budget.epochs > 1:
            yield f"The run reads the training text {budget.epochs:.3g} times."
        ratio = budget.tokens_per_parameter / TOKENS_PER_PARAMETER
        yield (
            f"About {TOKENS_PER_PARAMETER:g} tokens per parameter make the most of a budget (Hoffmann et al. 2022). "
            f"This run has {ratio:.3g} times as many; training.steps={budget.optimal_steps} would have them."
        )

    def values(self) -> dict[str, Any]:
        """Return the counts, and what follows from them."""
        return {**self.found._asdict(), **{name: getattr(self.found, name) for name in _DERIVED}}


def _rows(budget: TokenBudget) -> dict[str, str]:
    idle = budget.active_parameters < budget.parameters
    active = f", {format_count(budget.active_parameters)} of them active per token" if idle else ""
    rows = {
        "training tokens": format_count(budget.train_tokens),
        "validation tokens": format_count(budget.validation_tokens),
        "vocabulary": format_count(budget.vocab_size),
        "tokens per step": format_count(budget.tokens_per_step),
        "steps per epoch": f"{budget.steps_per_epoch:.4g}",
        "steps": format_count(budget.steps),
        "tokens": format_count(budget.tokens),
        "epochs": f"{budget.epochs:.3g}",
        "parameters": format_count(budget.parameters) + active,
        "tokens per parameter": f"{budget.tokens_per_parameter:.3g}",
    }
    if budget.step_seconds is not None:
        rows["time of the steps, predicted"] = format_seconds(budget.steps * budget.step_seconds)
    return rows
