"""`assay export`: write a run's weights to a folder, for transformers or as safetensors."""

from typing import Annotated

import typer

from assay.cli.options import Json, RunName


def export(
    run: RunName,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    form: Annotated[
        str, typer.Option("--format", metavar="hf|safetensors", help="hf: a GPT-2 folder for transformers.")
    ] = "hf",
    as_json: Json = False,
) -> None:
    """Write the newest checkpoint's weights and its tokenizer: a Hugging Face GPT-2 folder, or safetensors.

    \b
        assay export last my-gpt2
        assay export last my-weights --format safetensors

    AutoModelForCausalLM and AutoTokenizer of transformers read the folder, with any tokenizer of a run. A new run
    starts from these weights with model.init_from=my-gpt2.
    """
    from pathlib import Path

    from assay.cli.console import note, print_json
    from assay.config import Home
    from assay.store.trained_model import trained

    found = trained(Home(), run)
    for said in found.notes:
        note(f"assay: {said}")
    complaint = found.export(folder, form)
    place = Path(folder).absolute()
    if as_json:
        files = {path.name: path.stat().st_size for path in sorted(place.iterdir())}
        facts = {"run": found.run, "steps": found.steps, "notes": list(found.notes), "folder": str(place)}
        print_json({**facts, "format": form, "files_bytes": files})
    else:
        note(f"wrote the weights of {found.run} after {found.steps} steps{f', {complaint}' if complaint else ''}")
        typer.echo(place)
