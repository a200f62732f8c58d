"""A run's budget of tokens: how much text there is, how often training reads it, and how that suits the model's size.

A step reads ``batch_size × context_length`` tokens. An epoch is as many tokens as the training text has. Batches are
drawn at random positions, so an epoch need not read each token once. About 20 tokens per parameter make the most
of a compute budget (Hoffmann et al. 2022, approaches 1 and 2: 20.2 and 20.0 at one billion parameters).
"""

from collections.abc import Iterator
from typing import NamedTuple

from assay.config.home import Home
from assay.config.run import ResolvedRun, Run
from assay.cost.gpt_tape import active_parameter_count, parameter_count
from assay.data.prepared_folder import read_manifest
from assay.data.progress import Progress, silent
from assay.launch.prepare import ready
from assay.optimizations import optimizations_of

TOKENS_PER_PARAMETER = 20.0
"""Tokens per parameter of a compute-optimal run (Hoffmann et al. 2022)."""


class TokenBudget(NamedTuple):
    """Tokens of a corpus, a step and a run."""

    corpus: str
    train_tokens: int
    validation_tokens: int
    vocab_size: int
    tokens_per_step: int
    steps: int
    """Optimizer steps of the run: its setting, or fewer where `training.tokens` ends it before."""
    parameters: int
    active_parameters: int
    """Parameters that one token passes; fewer than `parameters` in a mixture of experts."""
    step_seconds: float | None
    """Predicted; None if the rates of this machine are not known."""
    remarks: tuple[str, ...] = ()
    """Parts of the corpus, or of a technique's own text, that are not read, or are read as one should know."""

    @property
    def steps_per_epoch(self) -> float:
        """Steps that read as many tokens as the training text has."""
        return self.train_tokens / self.tokens_per_step

    @property
    def tokens(self) -> int:
        """Tokens that the run reads, repeated ones included."""
        return self.steps * self.tokens_per_step

    @property
    def epochs(self) -> float:
        """Epochs of the run."""
        return self.tokens / self.train_tokens

    @property
    def tokens_per_parameter(self) -> float:
        """Tokens that the run reads, by parameter that a token passes."""
        return self.tokens / self.active_parameters

    @property
    def optimal_steps(self) -> int:
        """Steps after which the run has read `TOKENS_PER_PARAMETER` tokens per parameter."""
        return round(TOKENS_PER_PARAMETER * self.active_parameters / self.tokens_per_step)


def token_budget(asked: Run, home: Home, progress: Progress = silent) -> TokenBudget:
    """Return the budget of a run, whose corpus is prepared if need be. Raises `UsageError` as a run would."""
    able = ready(asked, home, progress)
    manifest, run = read_manifest(able.data_folder), able.run
    steps, tokens = run.training.steps, run.training.tokens
    if tokens is not None:
        steps = min(steps, -(-tokens // run.tokens_per_step))
    return TokenBudget(
        corpus=manifest.source.title,
        train_tokens=manifest.train.tokens,
        validation_tokens=manifest.validation.tokens,
        vocab_size=manifest.vocab_size,
        tokens_per_step=run.tokens_per_step,
        steps=steps,
        parameters=parameter_count(run.model),
        active_parameters=active_parameter_count(run.model),
        step_seconds=able.predicted.step_seconds if able.predicted else None,
        remarks=(*map(str, manifest.remarks), *_unread(run)),
    )


def _unread(run: ResolvedRun) -> Iterator[str]:
    for one in optimizations_of(run):
        yield from (*one.remarks(run), *one.remarks_on_records(run))
