"""Models, texts and tables as other people have them: each is tried as its owner would, and what came out is written.

    python benchmarks/others.py [--out PAGE.md] [--keep FOLDER]

`others_files.py` makes the files with the libraries of their owners. Where a checkpoint is read, its logits and those
of its export are held against transformers', in float32. The script ends with 1 if an answer is not the one that is
stated beside it. It takes two minutes.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from others_files import CONTEXT, make

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "measured" / "others.md"
TRAIN = "assay train model.init_from={0} data.tokenizer={0}/tokenizer.json data.path=input.txt training.steps=2"
PREPARE = "assay data prepare data.path={0} data.tokenizer=byte"
FIT = "assay scaling fit {0} --draws 20"
_LOGITS = 1e-6
"""Largest difference of two logits that count as equal, as a fraction of the largest logit."""
_DOCUMENTS = "252,698 training tokens"
"""Nine tenths of the 800 documents, joined by line ends where they do not end in one."""


class Case(NamedTuple):
    """Something that someone has, the command that they would type, and the answer that is right."""

    has: str
    path: str
    command: str
    right: str
    """Regular expression that the right answer contains. Of a checkpoint that is trained, logits must agree as well."""
    before: str = ""
    """Answer of assay before it was mended; empty if it was right at once."""


CHECKPOINTS = (
    Case("GPT-2 in bfloat16", "half", TRAIN, "validation loss"),
    Case("GPT-2 with `bias: false` and biases of zero", "gpt2-unbiased", TRAIN, "validation loss"),
    Case(
        "GPT-2 with `bias: false` and other biases, which transformers adds",
        "gpt2-says-unbiased",
        TRAIN,
        "is not zero; set model.bias=true",
        "the same, after the run had begun; it ended as failed and proposed `--resume`",
    ),
    Case("the same, as the sentence says", "gpt2-says-unbiased", f"{TRAIN} model.bias=true", "validation loss"),
    Case("Qwen2 with a sliding window that reaches no layer", "qwen2", TRAIN, "validation loss"),
    Case("Qwen2 with a window in its second layer", "qwen2-window", TRAIN, "use_sliding_window=True; only False"),
    Case("Qwen3, tied, with heads wider than its width", "qwen3", TRAIN, "validation loss"),
    Case("a model as SmolLM: tied, nine heads on three", "smollm", TRAIN, "validation loss"),
    Case("Llama with the rotations of 3.1", "llama31", TRAIN, "validation loss"),
    Case("Llama with linear scaling of rotations", "long", TRAIN, "rope_type='linear'; only 'default' and 'llama3'"),
    Case("Llama in six shards", "shards", TRAIN, "validation loss"),
    Case("Llama, tied by its configuration, with another `lm_head`", "tied-two-heads", TRAIN, "tie_embeddings=false"),
    Case("the same, as it says", "tied-two-heads", f"{TRAIN} model.tie_embeddings=false", "validation loss"),
    Case(
        "Llama, saved from a compiled model",
        "compiled",
        TRAIN,
        "begin with '_orig_mod.', as of a wrapped model",
        "42 tensors that do not fit",
    ),
    Case(
        "Llama with int8 weights",
        "int8",
        TRAIN,
        "in I8, rounded for inference",
        "it trained, on the integers",
    ),
    Case("Llama as `pytorch_model.bin`", "pickled", TRAIN, "is a pickle, which assay does not open; convert it"),
    Case(
        "an adapter of peft",
        "lora",
        "assay train model.init_from={0} data.path=input.txt",
        "it is an adapter; merge it",
        "a run that failed: model.safetensors is missing",
    ),
    Case(
        "a GGUF file",
        "gguf",
        "assay train model.init_from={0} data.path=input.txt",
        "is a GGUF file",
        "the folder needs model.safetensors",
    ),
    Case("OPT", "opt", TRAIN, "of type 'opt'; only gpt2, llama, mistral, qwen2, qwen3 can be read"),
    Case("GPT-NeoX: does it fit?", "neox", "assay capacity {0} --memory 8GB", "of type 'gpt_neox'; only gpt2"),
    Case(
        "Qwen3: does it fit?", "qwen3", "assay capacity {0} --memory 8GB", "a step fits: it needs 12.1 MiB of 7.45 GiB"
    ),
)
TEXTS = (
    Case("a CSV of reviews with a byte order mark", "reviews.csv", PREPARE, _DOCUMENTS),
    Case("the same from a spreadsheet, with semicolons", "excel.csv", PREPARE, _DOCUMENTS, "it has no column 'text'"),
    Case("`.jsonl.gz`", "lines.jsonl.gz", PREPARE, _DOCUMENTS),
    Case("the same, half downloaded", "half.jsonl.gz", PREPARE, "ended before the end-of-stream marker was reached"),
    Case("JSON Lines, every tenth text null", "nulls.jsonl", PREPARE, "left out: 80 records, null and no text"),
    Case("chats", "chats.jsonl", PREPARE, "lacks the field 'text' .it has messages.; name the text field"),
    Case(
        "a text of Windows: CRLF and a mark", "windows.txt", PREPARE, "with carriage returns .*with a byte order mark"
    ),
    Case(
        "a text in UTF-16",
        "notepad.txt",
        PREPARE,
        "utf-16 by its byte order mark, not UTF-8; set data.encoding=utf-16",
        "it contains NUL bytes",
    ),
    Case("the same, as it says", "notepad.txt", f"{PREPARE} data.encoding=utf-16", "training tokens"),
    Case("`.txt.bz2`", "book.txt.bz2", PREPARE, "training tokens"),
    Case("a data set of `save_to_disk`", "saved", PREPARE, f"metadata of a data set and no text.*{_DOCUMENTS}"),
    Case("one with the splits train and test", "splits", PREPARE, "1 file of .*, of a split that is not read"),
    Case(
        "Parquet of pandas with a categorical column",
        "categories.parquet",
        PREPARE,
        _DOCUMENTS,
        "dictionary, not text",
    ),
    Case(
        "a folder of notes with a picture, UTF-16 and Latin-1",
        "notes",
        PREPARE,
        "1 name, hidden.*utf-16 by the byte order mark.*not UTF-8.*with NUL bytes",
        "UTF-16 was counted among files that are no text",
    ),
    Case(
        "the same, streamed",
        "notes",
        "assay train demo data.path=input.txt data.tokenizer=byte training.steps=2 --with streaming:path={0}",
        "1 name, hidden.*utf-16 by the byte order mark.*not UTF-8.*with NUL bytes",
        "nothing was said of what is left out",
    ),
)
TABLES = (
    Case("Chinchilla's table with `Params (M)`", "chinchilla.csv", FIT, "fitted to 24 points"),
    Case("an export of W&B", "wandb.csv", FIT, "fitted to 24 points"),
    Case(
        "one with a run that crashed",
        "crashed.csv",
        FIT,
        "line 2: the column val/loss is empty; fill it, or leave the row of that run out",
        "the same without its second half",
    ),
    Case("one with keys of a configuration", "config.csv", FIT, "it has the columns Name, .*name them with --columns"),
    Case(
        "the same, as it says",
        "config.csv",
        f"{FIT} --columns n=model.n_params,d=data.tokens",
        "fitted to 24 points",
    ),
    Case(
        "nanochat's, in bits per byte",
        "nanochat.csv",
        FIT,
        "a loss per byte of text, so the law is in nats per byte",
        "nothing was said; constants of losses per token stood beside",
    ),
    Case("lines that end in CR", "mac.csv", FIT, "fitted to 24 points"),
    Case("semicolons and decimal commas", "german.csv", FIT, "separates its columns by semicolons; save it as CSV"),
    Case("`44M` and `0.22B`", "short.csv", FIT, "fitted to 24 points", "'44M' is no number"),
)


class Answer(NamedTuple):
    """What came out of a case."""

    said: str
    right: bool


def ran(words: str, place: Path) -> str:
    """Run a command of assay in a folder, and return what it printed, on one line."""
    variables = {**os.environ, "ASSAY_HOME": str(place / "home")}
    command = [sys.executable, "-m", *words.split()]
    done = subprocess.run(command, env=variables, cwd=place, capture_output=True, text=True, check=False)
    return re.sub(r"\s+", " ", done.stderr + done.stdout)


def tried(case: Case, place: Path) -> Answer:
    """Try a case as its owner would."""
    words = case.command.format(case.path)
    printed = _readable(ran(words, place))
    right = re.search(case.right, printed) is not None
    if not right or "validation loss" not in case.right:
        return Answer(_short(printed, case.right), right)
    folder, untied = f"{case.path}-{len(words)}", "tie_embeddings=false" in words
    apart = [_apart(place / case.path, untied=untied)]
    ran(f"assay export last {folder}", place)
    apart.append(_apart(place / folder, untied=untied))
    said = f"trains; its logits are transformers' to {apart[0]:.0e}, those of its export to {apart[1]:.0e}"
    return Answer(said, max(apart) < _LOGITS)


def _readable(printed: str) -> str:
    """Return a printed table of a corpus as a sentence."""
    return re.sub(r"256 (\d+)(\d{3}) (\d+)(\d{3}) byte \w+", r"\1,\2 training tokens, \3,\4 held out", printed)


def _short(printed: str, right: str) -> str:
    """Return the sentences of an answer that are asked for; all of it if they are missing."""
    found = re.search(right, printed)
    if found is None:
        return printed[-300:]
    if refusal := re.search(r"assay: (.*)", printed):
        return refusal[1].strip()
    told = re.findall(r"(?:left out|read as it is): [^;]*", printed)
    return (
        "; ".join([*dict.fromkeys(told), *re.findall(r"[\d,]+ training tokens, [\d,]+ held out", printed)]) or found[0]
    )


def _apart(folder: Path, *, untied: bool) -> float:
    """Return the largest difference between logits of ours and of transformers, as a fraction of the largest logit."""
    import torch
    import transformers

    from assay.config.hf import config_from_hf
    from assay.model import GPT
    from assay.model.hf import load_hf

    config = config_from_hf(folder)
    says = {"tie_embeddings": False} if untied else {}
    if config.position == "learned":
        says["bias"] = True
    config = config.model_copy(update=says)
    ours = GPT(config)
    ours.load_state_dict(load_hf(folder, config), strict=not config.tie_embeddings)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.randint(0, 500, (3, CONTEXT), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, right = ours.eval().logits(ids), theirs.eval()(ids).logits
        return float((found - right).abs().max() / right.abs().max())


def _command(case: Case, usual: str) -> str:
    """Return a case's command: the name and the words that follow, where the rest is the usual one."""
    if not case.command.startswith(usual):
        return f"`{case.command.format(case.path)}`"
    return " ".join(f"`{one}`" for one in (case.path, case.command.removeprefix(usual).strip()) if one)


def _rows(cases: Sequence[Case], usual: str, place: Path, wrong: list[str]) -> Iterator[str]:
    for case in cases:
        answer = tried(case, place)
        if not answer.right:
            wrong.append(case.has)
        verdict = "right" if answer.right else "**wrong**"
        mended = f"{verdict}; before: {case.before}" if case.before else verdict
        print(f"{case.path}: {answer.said[:100]} ({verdict})", flush=True)
        said = answer.said.replace(f"{place}/", "")
        yield f"| {case.has} | {_command(case, usual)} | {said} | {mended} |"


def page(place: Path, wrong: list[str]) -> str:
    """Return the page of all cases, and add those that are wrong to a list."""
    every = (*CHECKPOINTS, *TEXTS, *TABLES)
    mended = sum(bool(case.before) for case in every)
    parts = {"Checkpoints": (TRAIN, CHECKPOINTS), "Texts": (PREPARE, TEXTS), "Tables of trainings": (FIT, TABLES)}
    libraries = ("torch", "transformers", "datasets", "pandas", "pyarrow")
    used = ", ".join([f"Python {sys.version.split()[0]}", *(f"{name} {version(name)}" for name in libraries)])
    head = f"""# Files of others

<!-- Written by benchmarks/others.py. -->

{len(every)} checkpoints, texts and tables in the forms in which other people have them, made by the libraries that
they use, tiny and random. Each was tried with the command that its owner would type first. {mended} of the answers were
wrong or said too little; they are mended, and what assay said before stands beside them.

`python benchmarks/others.py` makes and tries them. Made on {datetime.now(UTC):%Y-%m-%d} with {used}.
Logits are those of 192 random tokens in float32; their differences are fractions of the largest one.
"""
    lines = []
    for title, (usual, cases) in parts.items():
        lines += [f"\n## {title}\n", f"`{usual.format('NAME')}`, where no other command stands.\n"]
        lines += ["| what someone has | name | what came out | |", "| --- | --- | --- | --- |"]
        lines += _rows(cases, usual, place, wrong)
    return head + "\n".join(lines) + "\n"


def main() -> int:
    """Make the files, try all cases, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--keep", type=Path, help="an empty folder for the files")
    options = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as made:
        place = options.keep or Path(made)
        make(place)
        options.out.write_text(page(place, wrong), encoding="utf-8")
    print(f"wrong: {'; '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
