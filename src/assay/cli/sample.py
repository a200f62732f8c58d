"""`assay sample`: continue a text with a run's model."""

import time
from typing import Annotated

import typer

from assay.cli.options import Json, RunName
from assay.config.sampling import PROMPT, SEED, TEMPERATURE, TOKENS

_Temperature = Annotated[
    float,
    typer.Option(
        help="Divides the logits: below 1 favours likely tokens, above 1 unlikely ones; 0 takes the likeliest."
    ),
]


def sample(
    run: RunName,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="Text to continue; by default a line break.")] = PROMPT,
    tokens: Annotated[int, typer.Option(min=1, help="Number of tokens to add.")] = TOKENS,
    temperature: _Temperature = TEMPERATURE,
    top_k: Annotated[int | None, typer.Option(help="Sample only from this number of likeliest tokens.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed gives the same text.")] = SEED,
    cache: Annotated[
        bool,
        typer.Option(
            help="Keep keys and values of earlier tokens. Up to the context, the text is the same with and without."
            " Beyond it a full cache begins again with its second half: tokens see fewer before them, and it differs."
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Continue a text with a trained model.

    The model is that of the newest checkpoint of a run.

    \b
        assay sample last --prompt "ROMEO:" --tokens 500
    """
    from assay.cli.console import note, print_json
    from assay.config import Home
    from assay.store.trained_model import find_trained

    found = find_trained(Home(), run)
    for said in found.notes:
        note(f"assay: {said}")
    import numpy as np

    from assay.model.cache import KeyValueCache
    from assay.model.generate import generate, pieces

    tokenizer = found.tokenizer()
    given = tokenizer.encode(prompt).tolist()
    model = found.model()
    began = time.perf_counter()
    added = generate(model, given, tokens, temperature, top_k, seed, cache=cache)
    text = pieces(lambda ids: tokenizer.decode(np.asarray(ids, dtype=np.int64)), given, added)
    if as_json:
        whole = "".join(text)
        asked = {"prompt": prompt, "tokens": tokens, "temperature": temperature, "top_k": top_k, "seed": seed}
        speed = {
            "tokens_per_second": tokens / (time.perf_counter() - began),
            "cache_bytes": KeyValueCache(model).nbytes if cache else 0,
        }
        facts = {"run": found.run, "steps": found.steps, "notes": list(found.notes)}
        print_json({**facts, **asked, "text": whole, **speed})
        return
    typer.echo(prompt, nl=False)
    for piece in text:
        typer.echo(piece, nl=False)
    typer.echo()
    note(_speed(tokens, time.perf_counter() - began, KeyValueCache(model).nbytes if cache else None))


def _speed(tokens: int, seconds: float, cache_bytes: int | None) -> str:
    from assay.units import format_bytes, format_seconds

    kept = "no cache" if cache_bytes is None else f"a cache of {format_bytes(cache_bytes)}"
    return f"assay: {tokens} tokens in {format_seconds(seconds)}, {tokens / seconds:,.1f} tokens/s with {kept}"
