"""`assay export`: write a run's weights to a folder, for transformers or as safetensors."""

from typing import Annotated

import typer

from assay.cli.options import Json, RunName


def export(
    run: RunName,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    form: Annotated[
        str, typer.Option("--format", metavar="hf|safetensors", help="hf: a folder for transformers.")
    ] = "hf",
    as_json: Json = False,
) -> None:
    """Write a run's model as a Hugging Face folder.

    \b
        assay export last my-model
        assay export last my-weights --format safetensors

    The folder is that of a GPT-2, a Llama, a Qwen2 or a Qwen3, whichever has the model's parts. AutoModelForCausalLM
    and AutoTokenizer of transformers read it, with any tokenizer of a run. A new run starts from these weights with
    model.init_from=my-model. If the run began with a checkpoint, such as a Mistral, its family stays. Files of its
    tokenizer, settings of generation and configuration are kept. What differs is printed.
    """
    from pathlib import Path

    from assay.cli.console import note, print_json
    from assay.config import Home
    from assay.store.trained_model import find_trained

    found = find_trained(Home(), run)
    for said in found.notes:
        note(f"assay: {said}")
    done = found.export(folder, form)
    kept, complaint = done.kept, done.complaint
    place = Path(folder).absolute()
    if as_json:
        written = sorted(path for path in place.rglob("*") if path.is_file())
        files = {path.relative_to(place).as_posix(): path.stat().st_size for path in written}
        facts = {"run": found.run, "steps": found.steps, "notes": list(found.notes), "folder": str(place)}
        origin = {"source": kept.source and str(kept.source), "kept": list(kept.kept), "differs": list(kept.differs)}
        print_json({**facts, "format": form, "files_bytes": files, "merged_adapters": done.adapters, **origin})
    else:
        if done.adapters:
            note(f"{done.adapters} adapters are merged into the weights: W + (alpha / rank)·B·A")
        if kept.kept:
            note(f"kept of {kept.source}, byte for byte: {', '.join(kept.kept)}")
        if kept.differs:
            note(f"differs from {kept.source or 'the beginning'}: {'; '.join(kept.differs)}")
        note(f"wrote the weights of {found.run} after {found.steps} steps{f', {complaint}' if complaint else ''}")
        typer.echo(place)
