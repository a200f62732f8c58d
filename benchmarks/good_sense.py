"""Forty questions of good sense, asked of `assay`, beside the answer that a practitioner would give.

    python benchmarks/good_sense.py [--out PAGE.md] [ID ...]

The questions, their answers and sources are `benchmarks/data/good_sense.yaml`, which was written before any of them was
asked. An answer is right if all that is expected of it holds; hours and money are the likely ones, in the middle of
what is printed from and to. The page is written to `docs/measured/good_sense.md`. It takes a minute.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

HERE = Path(__file__).parent
QUESTIONS = HERE / "data" / "good_sense.yaml"
PAGE = HERE.parent / "docs" / "measured" / "good_sense.md"
PURE = ("bf16_full", "fp16_full")
"""Weights in 16 bits only."""
_WRONG = """
Of the wrong ones, three are of eight GPUs. Compiled steps are proven on one device only, so no layout has them, and the
eager steps that are advised take twice as long as the compiled ones that were published. The fourth is nanoGPT's
character model: its three minutes have evaluations of 8,000 batches, which hours here leave out.
"""
"""Why answers of 2026-11-27 are wrong."""
_NOTHING = ("nothing fits", "nothing can be recommended")


class Answer(NamedTuple):
    """What `assay` answered, as far as questions ask for it."""

    fits: bool | None
    stack: tuple[str, ...]
    """Names of the advised techniques; empty where none are advised."""
    hours: tuple[float, float] | None
    money: tuple[float, float] | None
    batch: int | None
    """Most sequences that fit."""
    sentence: str


def questions() -> list[dict[str, Any]]:
    """Return the questions."""
    found: list[dict[str, Any]] = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    return found


def read(value: Mapping[str, Any]) -> Answer:
    """Return the answer in what a verb printed with --json."""
    best = value.get("recommended") or {}
    training = value.get("training") or {}
    names = tuple(one.partition(":")[0] for one in best.get("optimizations", "").split("+") if one)
    hours = training.get("hours") or _planned_hours(value)
    money = training.get("money")
    return Answer(
        _fits(value, best), names, hours and tuple(hours), money and tuple(money), _batch(value), _sentence(value)
    )


def _fits(value: Mapping[str, Any], best: Mapping[str, Any]) -> bool | None:
    if best:
        return bool(best["need_bytes"] <= value["budget_bytes"])
    if "fit" in value:
        return bool(value["fit"]["verdict"] == "fits")
    if "largest" in value:
        return bool(value["largest"][0]["configured_bytes"] <= value["memory_bytes"])
    if "rows" in value:
        return bool(value["rows"][0]["fits"])
    return value.get("fits")


def _planned_hours(value: Mapping[str, Any]) -> list[float] | None:
    return [value["training_seconds"] / 3600] * 2 if "training_seconds" in value else None


def _batch(value: Mapping[str, Any]) -> int | None:
    return value["largest"][0]["value"] if "largest" in value else None


def _sentence(value: Mapping[str, Any]) -> str:
    best = value.get("recommended")
    return best["optimizations"] if best else ""


def wrong(expected: Mapping[str, Any], found: Answer) -> list[str]:
    """Return what does not hold of all that is expected."""
    faults = []
    if "fits" in expected and found.fits != expected["fits"]:
        faults.append("it fits" if found.fits else "it does not fit")
    faults += [
        f"none of {', '.join(any_of)}" for any_of in expected.get("has", ()) if not set(any_of) & set(found.stack)
    ]
    faults += [f"{one} is advised" for one in expected.get("hasnt", ()) if one in found.stack]
    for name in ("hours", "money"):
        if name in expected:
            low, high = expected[name]
            given = getattr(found, name)
            if given is None or not low <= sum(given) / 2 <= high:
                faults.append(f"{name} {'none' if given is None else f'{given[0]:.3g} to {given[1]:.3g}'}")
    if "batch" in expected and (found.batch or 0) < expected["batch"]:
        faults.append(f"a batch of {found.batch}")
    return faults


def asked(words: Sequence[str], home: Path) -> Answer:
    """Ask `assay` in a process of its own, and return its answer. A refusal because nothing fits is one."""
    variables = {**os.environ, "ASSAY_HOME": str(home)}
    command = [sys.executable, "-m", "assay", *words, "--json"]
    done = subprocess.run(command, env=variables, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        refusal = done.stderr.strip().splitlines()[-1].removeprefix("assay: ")
        fits = False if any(one in refusal for one in _NOTHING) else None
        return Answer(fits, (), None, None, None, refusal)
    return read(json.loads(done.stdout))


def _rows(found: Mapping[str, tuple[Mapping[str, Any], Answer]]) -> Iterator[str]:
    for question, answer in found.values():
        faults = wrong(question["expected"], answer)
        verdict = f"wrong: {'; '.join(faults)}" if faults else "right"
        yield f"| {question['question']} | {question['answer']} | {_said(answer)} | {verdict} |"


def _said(answer: Answer) -> str:
    words = {True: "fits", False: "does not fit"}.get(answer.fits, "")  # type: ignore[call-overload]
    hours = "" if answer.hours is None else f"{answer.hours[0]:.3g} to {answer.hours[1]:.3g} hours"
    money = "" if answer.money is None else f"{answer.money[0]:.3g} to {answer.money[1]:.3g} in money"
    batch = "" if answer.batch is None else f"up to {answer.batch} sequences"
    stack = f"`{answer.sentence}`" if answer.stack else answer.sentence
    return "; ".join(one for one in (words, stack, hours, money, batch) if one)


def page(found: Mapping[str, tuple[Mapping[str, Any], Answer]]) -> str:
    """Return the page of all questions and answers."""
    right = sum(not wrong(question["expected"], answer) for question, answer in found.values())
    head = f"""# Good sense

{len(found)} questions of good sense, of which `assay` answers {right} as a practitioner would. The questions, the
expected answers and their public sources are in `benchmarks/data/good_sense.yaml`. They were committed before any of
them was asked. `benchmarks/good_sense.py` asks them, and says what makes an answer right.

| question | a practitioner's answer | assay's answer | |
| --- | --- | --- | --- |
"""
    return head + "\n".join(_rows(found)) + "\n" + _WRONG


def main() -> None:
    """Ask all questions, or those that are named, and write the page of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("ids", nargs="*")
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as home:
        for question in questions():
            if given.ids and question["id"] not in given.ids:
                continue
            answer = asked(question["ask"], Path(home))
            found[question["id"]] = question, answer
            print(question["id"], "|", "; ".join(wrong(question["expected"], answer)) or "right", "|", _said(answer))
    if not given.ids:
        given.out.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
