"""Steps beside a lock, as a reader is shown them: the verdicts, the figures that changed, and whose bytes grew.

Times beside those of a base commit are a sentence each, with ratio and interval. For other programs there are files:
JUnit's XML for a server of builds, Markdown for a summary.
"""

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from assay.analysis.step_ratio import GateTimes, StepRatio
from assay.launch.gate import ABSENT_FIGURES, FIGURES, STEP_FIGURES, BlockChange, GateAnswer, StepCheck
from assay.launch.gpu_peak import PYTHON
from assay.records.gated import Figure, GatedFigure
from assay.report.kit.blocks import Block, Facts, Table, plain_text
from assay.report.kit.view import Shown
from assay.units import format_bytes, format_flops

_TITLES: dict[GatedFigure, str] = {
    "peak_bytes": "peak of tensors",
    "saved_bytes": "saved for backward",
    "flops": "FLOPs",
    "synchronizations": "host waits",
    "graph_breaks": "graph breaks",
    "requested_peak_bytes": "requested (absent GPU)",
    "reserved_peak_bytes": "reserved (absent GPU)",
}
_PARTS = {
    "gradients of activations": "gradient",
    "activations in use": "in use",
    "optimizer state": "state",
    "token ids and targets": "batch",
}
"""Short names of parts."""
_ROWS, _ORIGIN, _LINE = 8, 30, 17
"""Most rows of a table, and widths of its texts, with which it has at most 80 columns."""


class GateView(Shown[GateAnswer]):
    """Steps beside a lock, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield each step's verdict, with what changed of it, and what to do."""
        for check in self.found.checks:
            yield headline(self.found, check)
            yield from changed_blocks(check)
        if advice := _advice(self.found):
            yield advice

    def values(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        found = self.found
        return {
            "lock": str(found.lock),
            "updated": found.updated,
            "exit_code": int(found.exit_code),
            "steps": [_values(found, one) for one in found.checks],
        }


def headline(answer: GateAnswer, check: StepCheck) -> str:
    """Return the verdict on a step in one line."""
    figures = check.now.found.figures
    peak = f"{format_bytes(figures['peak_bytes'])} at the peak"
    sentences = {
        "locked": f"locked, {peak}",
        "unchanged": f"unchanged, {peak}",
        "shrank": f"takes less than is locked, {peak}",
        "grew": f"grew: {', '.join(_TITLES[one] for one in check.grown)}",
        "other torch": _other_torch(check),
    }
    return f"{check.title}: {sentences[check.verdict]}"


def _other_torch(check: StepCheck) -> str:
    changed = [_TITLES[one] for one in FIGURES if check.other_torch(one) and len(set(check.pair(one))) > 1]
    was = check.locked.found.torch if check.locked else ""
    differ = f"these differ: {', '.join(changed)}" if changed else "no figure differs"
    return f"locked with torch {was}, checked with {check.now.found.torch}; {differ}"


def changed_blocks(check: StepCheck) -> Iterator[Block]:
    """Yield a table of the figures that changed, and the blocks of each that grew, or of any under another torch."""
    pairs = {one: check.pair(one) for one in FIGURES}
    rows = [(_TITLES[one], *_texts(one, *pair)) for one, pair in pairs.items() if pair[0] != pair[1]]
    if rows:
        yield Table.of(("figure", "locked", "now", "change"), rows, ("locked", "now", "change"))
    shown = [
        one
        for one in STEP_FIGURES
        if pairs[one][1] > pairs[one][0] or (check.other_torch() and pairs[one][1] != pairs[one][0])
    ]
    for figure in shown:
        yield from _grown_blocks(check, figure)
    if facts := tuple(_absent(check)):
        yield Facts(facts)


def _grown_blocks(check: StepCheck, figure: Figure) -> Iterator[Block]:
    """Yield the blocks of a figure that grew most."""
    changes = check.changes(figure)
    grown = [one for one in changes if one.after > one.before] or changes
    rows = [
        (_origin(one), _end(one.block.line, _LINE), *_texts(figure, one.before, one.after)[:2]) for one in grown[:_ROWS]
    ]
    if rows:
        heading = f"grew in: {_TITLES[figure]}" if any(one.after > one.before for one in grown) else _TITLES[figure]
        yield Table.of((heading, "line", "locked", "now"), rows, ("locked", "now"))
    if more := len(grown) - len(rows):
        yield f"{more} more blocks grew."
    if figure == "peak_bytes" and check.locked and check.locked.found.instant != check.now.found.instant:
        yield f"The peak was at {check.locked.found.instant}, and is at {check.now.found.instant}."


def _origin(change: BlockChange) -> str:
    """Return what a block is, in few characters: part, path and operator."""
    block = change.block
    part = _PARTS.get(block.part, block.part).removeprefix("saved: ")
    where = " ".join(filter(None, (block.path, block.operator.removeprefix("aten."))))
    words = f"{part} {where}".strip()
    return words if len(words) <= _ORIGIN else _end(where or words, _ORIGIN)


def _end(text: str, most: int) -> str:
    """Return the end of a text of at most so many characters."""
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _texts(figure: GatedFigure, before: int, after: int) -> tuple[str, str, str]:
    """Return a figure before, after, and its change; exact where rounded texts would be the same."""
    form = format_bytes if figure.endswith("bytes") else format_flops if figure == "flops" else str
    was, now = form(before), form(after)
    if was == now and before != after:
        was, now = f"{before:,}", f"{after:,}"
    sign, change = ("+" if after > before else "−"), abs(after - before)
    return was, now, f"{sign}{form(change)}"


def _absent(check: StepCheck) -> Iterator[tuple[str, str]]:
    """Yield the figures of an absent GPU, and whether they were compared."""
    here, there = check.now.absent, check.locked.absent if check.locked else None
    if here is not None:
        requested, reserved = (format_bytes(here.figures[one]) for one in ABSENT_FIGURES)
        yield "absent GPU", f"{requested} requested with workspaces, {reserved} reserved"
        yield "", f"{here.device}, torch {here.torch}"
        if there is not None and there.torch != here.torch:
            yield "", f"locked with torch {there.torch}, so these decide nothing"
    elif there is not None:
        yield "not checked", f"figures of an absent {there.device}, torch {there.torch}"
        yield "", f"{PYTHON} names no Python with a CUDA build here"


def _advice(answer: GateAnswer) -> str:
    """Return what to do; empty if there is nothing."""
    verdicts = {one.verdict for one in answer.checks}
    if answer.updated:
        return f"Written to {answer.lock.name}; commit it."
    if answer.exit_code:
        return "If this growth is intended, lock it: assay gate update"
    if "shrank" in verdicts:
        return "Lock the smaller figures, so that they hold from now on: assay gate update"
    if "other torch" in verdicts:
        return "Nothing is decided under another torch; lock its figures (assay gate update), or check with --strict."
    if any(one.locked and one.now.absent and not one.locked.absent for one in answer.checks):
        return "The figures of the absent GPU are not locked yet: assay gate update"
    return ""


def _values(answer: GateAnswer, check: StepCheck) -> dict[str, Any]:
    """Return a step as plain values."""
    known = {*check.now.found.figures, *(check.now.absent.figures if check.now.absent else ())}
    figures = {one: check.pair(one) for one in FIGURES if one in known}
    return {
        "step": check.now.step,
        "device": check.now.device,
        "verdict": check.verdict,
        "failed": answer.fails(check),
        "torch": check.now.found.torch,
        "locked_torch": check.locked and check.locked.found.torch,
        "figures": {name: {"locked": before, "now": after} for name, (before, after) in figures.items()},
        "parts": dict(check.now.found.parts),
        "changed": {
            name: [
                {**one.block.model_dump(mode="json", exclude={"size", "count"}), "locked": one.before, "now": one.after}
                for one in check.changes(name)
            ]
            for name in STEP_FIGURES
            if len(set(check.pair(name))) > 1
        },
        "absent": check.now.absent and check.now.absent.model_dump(mode="json"),
        "locked_absent": check.locked and check.locked.absent and check.locked.absent.model_dump(mode="json"),
    }


class GateTimesView(Shown[GateTimes]):
    """Times of steps beside those of a base commit, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield a sentence for each step, and what disturbed it."""
        for one in self.found.ratios:
            yield f"{_time_sentence(self.found, one)} {_time_verdict(self.found, one)}".strip()
            disturbed, rounds = one.disturbed
            if 2 * disturbed > rounds:
                yield f"Other programs disturbed {disturbed} of {rounds} rounds, which makes the interval wide."

    def values(self) -> dict[str, Any]:
        """Return the answer as plain values; times themselves mean little elsewhere, and are left out."""
        found = self.found
        return {
            "base": found.base,
            "at_most": found.at_most,
            "exit_code": int(found.exit_code),
            "steps": [_time_values(found, one) for one in found.ratios],
        }


def _time_sentence(found: GateTimes, one: StepRatio) -> str:
    low, high = one.interval
    return (
        f"{one.step} on {one.pairs[0].device} takes {one.ratio:.3f} times as long as at {found.base}, 95 % interval "
        f"{low:.3f} to {high:.3f}."
    )


def _time_verdict(found: GateTimes, one: StepRatio) -> str:
    """Return what follows from the interval."""
    low, high = one.interval
    if found.at_most is None:
        return "No difference is shown, because the interval contains 1." if low <= 1 <= high else ""
    if found.exceeds(one):
        return f"All of it is above {found.at_most:g}."
    if high > found.at_most:
        return f"It contains {found.at_most:g}, so this does not fail; more --pairs make it narrower."
    return f"It is not above {found.at_most:g}."


def _time_values(found: GateTimes, one: StepRatio) -> dict[str, Any]:
    disturbed, rounds = one.disturbed
    return {
        "step": one.step,
        "device": one.pairs[0].device,
        "ratio": one.ratio,
        "interval": list(one.interval),
        "failed": found.exceeds(one),
        "pairs": list(one.by_pair),
        "rounds": rounds,
        "disturbed_rounds": disturbed,
    }


def junit_text(answer: GateAnswer) -> str:
    """Return the checks as JUnit's XML: a test for each step and device, whose failure has the tables as text."""
    failed = sum(map(answer.fails, answer.checks))
    suite = ElementTree.Element(
        "testsuite", name="assay gate", tests=str(len(answer.checks)), failures=str(failed), errors="0"
    )
    for check in answer.checks:
        case = ElementTree.SubElement(suite, "testcase", classname=check.now.step, name=check.now.device)
        if answer.fails(check):
            failure = ElementTree.SubElement(case, "failure", message=headline(answer, check))
            failure.text = plain_text(changed_blocks(check))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def failure_text(answer: GateAnswer) -> str:
    """Return the answer as text for a failed test."""
    return plain_text(GateView(answer).blocks())


def markdown_text(answer: GateAnswer) -> str:
    """Return the answer as Markdown."""
    lines = ["## Memory gate", ""]
    for block in GateView(answer).blocks():
        if isinstance(block, Table):
            lines += [
                _markdown_row(block.columns),
                _markdown_row("---:" if one in block.right else "---" for one in block.columns),
            ]
            lines += map(_markdown_row, block.rows)
        elif isinstance(block, Facts):
            lines += [f"- {label} {text}".replace("  ", " ") for label, text in block.rows]
        else:
            lines.append(block)
        lines.append("")
    return "\n".join(lines)


def _markdown_row(texts: object) -> str:
    """Return a row of a table, in which no text ends a cell."""
    cells = (one.replace("|", "\\|").replace("*", "\\*") for one in texts)  # type: ignore[attr-defined]
    return f"| {' | '.join(cells)} |"
