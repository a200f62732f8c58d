"""Tokens per second of generation with a cache of keys and values, and without, in interleaved pairs.

    python benchmarks/generation.py [--pairs 5] [--json]

Each side adds the same tokens from one random model, up to the model's context, likeliest first. The sides of a pair
swap order from pair to pair, and a ratio is taken within a pair. The tokens of both sides are compared in float64,
where rounding decides between no two of them.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles

import torch

from assay.config import ModelConfig, load
from assay.model import GPT, initializer
from assay.model.cache import KeyValueCache
from assay.model.generate import generate
from assay.units import format_bytes

MODELS = {
    "llama-tiny": load("llama-tiny", ["model.vocab_size=256"]).model,
    "shakespeare-char-cpu, context 256": load(
        "shakespeare-char-cpu", ["model.vocab_size=65", "model.context_length=256"]
    ).model,
}


@dataclass(frozen=True)
class Row:
    """One model's generation."""

    model: str
    tokens: int
    cache_bytes: int
    with_cache: float
    """Tokens per second, the median of the pairs."""
    without: float
    ratio: tuple[float, float, float]
    """Quartiles of the ratio within a pair."""
    equal: bool
    """True if both sides add the same tokens in float64."""


def random_model(config: ModelConfig, seed: int = 0) -> GPT:
    """Return a model with random weights, in evaluation mode."""
    initialize, model = initializer(config, seed), GPT(config)
    model.load_state_dict({name: initialize(name, one.shape) for name, one in model.state_dict().items()})
    return model.eval()


def measure(name: str, config: ModelConfig, pairs: int) -> Row:
    """Time both sides of one model."""
    model, tokens = random_model(config), config.context_length - 1
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs + 1):  # the first pair warms up
        for cache in (True, False) if pair % 2 == 0 else (False, True):
            began = time.perf_counter()
            sum(1 for _ in generate(model, [1], tokens, 0.0, cache=cache))
            if pair:
                seconds[cache].append(time.perf_counter() - began)
    room, wide = KeyValueCache(model).nbytes, model.double()
    both = [list(generate(wide, [1], tokens, 0.0, cache=cache)) for cache in (True, False)]
    lower, middle, upper = quartiles([b / a for a, b in zip(seconds[True], seconds[False], strict=True)])
    speeds = (tokens / quartiles(seconds[cache])[1] for cache in (True, False))
    return Row(name, tokens, room, *speeds, (lower, middle, upper), both[0] == both[1])


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of at least two values."""
    lower, middle, upper = quantiles(values, n=4, method="inclusive")
    return lower, middle, upper


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each model; returns 1 if a cache changed a token."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)  # products this small gain nothing from two, and on a busy machine two wait for each other
    rows = [measure(name, config, max(2, asked.pairs)) for name, config in MODELS.items()]
    if asked.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        for row in rows:
            lower, middle, upper = row.ratio
            print(
                f"{row.model}: {row.tokens} tokens, {row.with_cache:,.0f} tokens/s with a cache of "
                f"{format_bytes(row.cache_bytes)}, {row.without:,.0f} without; {middle:.2f} times as many "
                f"[{lower:.2f}, {upper:.2f}]; {'equal' if row.equal else 'UNEQUAL'} tokens in float64"
            )
    return 0 if all(row.equal for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
