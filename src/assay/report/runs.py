"""The list of runs, and two of them side by side: the keys in which they differ, and their figures.

Figures are listed for the reader to judge. Two single runs have no interval, so no change is called real here; `assay
compare` is for that.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from assay.report.kit.blocks import UNKNOWN, Block, Table, amount, figure
from assay.report.kit.view import Shown
from assay.report.run import flat
from assay.store.index import Entry
from assay.units import format_count, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas

    from assay.records.run import RunResult

FIGURES = ("steps", "val loss", "tokens/s", "tensors peak", "process peak")
COLUMNS = ("run", "status", "created", "preset", "corpus", "model", "with", *FIGURES)
SPARE = ("created", "model", "process peak", "corpus", "tokens/s", "steps", "preset")
"""Columns that a narrow terminal leaves out first. An id begins with the time of its creation."""

_KEPT = ("run", "status", "reason", "created", "identity", "preset", "corpus", "nudge", "steps", "tokens", "train_loss")
_KEPT_FIGURES = ("val_loss", "val_targets", "tokens_per_second", "tensors_peak_bytes", "process_peak_bytes")
_KEPT_COUNTS = ("blocks", "disturbed_blocks")
_LETTERS = 25


def unlike(entries: "Iterable[Entry]") -> dict[str, str]:
    """Return a letter for each run with a loss, by its evaluation; empty if all evaluations are alike.

    An evaluation depends on the held-out tokens, on how many of them were predicted, and on the context.
    """
    # A run that was killed has a loss alone.
    known = (one for one in entries if one.val_targets is not None or one.corpus_digest is not None)
    evaluations = {one.run: one.evaluation for one in known if one.evaluation is not None}
    kinds = list(dict.fromkeys(evaluations.values()))
    if len(kinds) < 2:
        return {}
    return {run: _letter(kinds.index(one)) for run, one in evaluations.items()}


UNLIKE = "Losses with different letters are of unlike evaluations: other held-out tokens, or another context."


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < _LETTERS else f"z{number - _LETTERS + 1}"


def row(entry: Entry, mark: str = "") -> tuple[str, ...]:
    """Return a run as a row of the table; `mark` is the letter of its evaluation."""
    shape = (entry.n_layer, entry.n_head, entry.n_embd, entry.context_length)
    return (
        entry.run,
        _status(entry),
        (entry.created or UNKNOWN)[:19].replace("T", " "),
        entry.preset or UNKNOWN,
        _shortened(entry.corpus),
        UNKNOWN if None in shape else "{}L {}H {}E {}T".format(*shape),
        UNKNOWN if entry.identity is None else _stack(entry.optimizations) + (" (nudged)" if entry.nudge else ""),
        UNKNOWN if entry.steps is None else str(entry.steps),
        figure(entry.val_loss) + (f" {mark}" if mark else ""),
        UNKNOWN if entry.tokens_per_second is None else format_count(entry.tokens_per_second),
        amount(entry.tensors_peak_bytes),
        amount(entry.process_peak_bytes),
    )


def brief(entry: Entry, study: str | None = None) -> dict[str, Any]:
    """Return a run as a value of ``--json``; `study` is the id of the study of which it is a cell."""
    from assay.store.index import given_name

    values = entry._asdict()
    kept = {name: values[name] for name in (*_KEPT, *_KEPT_FIGURES, *_KEPT_COUNTS)}
    named = {"name": given_name(entry.run), "study": study, "optimizations": json.loads(entry.optimizations)}
    return {**kept, "unproven": None if entry.unproven is None else bool(entry.unproven), **named}


def known_status(text: str, entries: "Sequence[Entry]") -> str:
    """Return a status that a run can have. Raises `UsageError` for another word."""
    if any(entry.status == text for entry in entries):
        return text
    from assay.errors import UsageError, suggestion
    from assay.records.status import Status

    known = [one.value for one in Status]
    others = f"; choose from {', '.join(known)}"
    if text not in known:
        raise UsageError(f"there is no status {text!r}{suggestion(text, known) or others}")
    return text


def _status(entry: Entry) -> str:
    """Return the status, what of it is not proven or was disturbed, and whether a finished run has a remark."""
    unproven = "not proven" if entry.unproven else ""
    disturbed = f"disturbed {entry.disturbed_blocks}/{entry.blocks}" if entry.disturbed_blocks else ""
    remark = "with a remark" if entry.status == "done" and entry.reason else ""
    said = ", ".join(filter(None, (unproven, disturbed, remark)))
    return f"{entry.status} ({said})" if said else entry.status


@cache
def _stack(optimizations: str) -> str:
    return "+".join(json.loads(optimizations)) or "none"


def _shortened(corpus: str | None) -> str:
    """Shorten a file to its name; the folders before it rarely distinguish two runs."""
    return UNKNOWN if corpus is None else corpus.rstrip("/").rpartition("/")[2] or corpus


Pair = tuple[Any, Any]


class RunsView(Shown[Sequence[Entry]]):
    """A list of runs, as a reader is shown it; `studies` has the study of each run that is a cell of one."""

    def __init__(self, found: "Sequence[Entry]", studies: Mapping[str, str] | None = None) -> None:
        super().__init__(found)
        self._studies = studies or {}

    @cached_property
    def marks(self) -> dict[str, str]:
        """Letters of runs with unlike evaluations."""
        return unlike(self.found)

    def blocks(self) -> Iterator[Block]:
        """Yield the table."""
        yield Table.of(COLUMNS, (row(one, self.marks.get(one.run, "")) for one in self.found), FIGURES, SPARE)

    def values(self) -> list[dict[str, Any]]:
        """Return each run for programs."""
        return [brief(one, self._studies.get(one.run)) for one in self.found]

    def frame(self) -> "pandas.DataFrame":
        """Return a row per run, indexed by its id, with every column of the store's index."""
        import pandas

        from assay.store.index import Entry

        return pandas.DataFrame([one._asdict() for one in self.found], columns=Entry._fields).set_index("run")


class RunDifferencesView(Shown[Mapping[str, Mapping[str, Pair]]]):
    """The differences of two runs, as a reader is shown them: configuration, environment and figures."""

    def __init__(self, found: "Mapping[str, Mapping[str, Pair]]", runs: tuple[str, str]) -> None:
        super().__init__(found)
        self._runs = runs

    def blocks(self) -> Iterator[Block]:
        """Yield a table of each part, or a sentence where nothing differs."""
        for name in ("config", "environment"):
            rows = [(key, *pair) for key, pair in self.found[name].items()]
            yield Table.of((name, *self._runs), rows) if rows else f"{name}: the same"
        columns = ("figures", *self._runs, "change")
        yield Table.of(columns, changed_rows(self.found["figures"]), columns[1:])

    def values(self) -> dict[str, Any]:
        """Return the ids of both runs, and each difference, for programs."""
        return {"runs": self._runs, **self.found}


def configurations(a: "RunResult", b: "RunResult") -> dict[str, Pair]:
    """Return the keys in which two configurations differ, with optimizations as they are written."""
    return _unlike(flat(a.config.model_dump(mode="json")), flat(b.config.model_dump(mode="json")))


def environments(a: "RunResult", b: "RunResult") -> dict[str, Pair]:
    """Return the fields in which two environments differ; a run that was killed may have recorded none."""
    ours, theirs = (
        {} if one.provenance.environment is None else flat(one.provenance.environment.model_dump(mode="json"))
        for one in (a, b)
    )
    return _unlike(ours, theirs)


def figures(a: "RunResult", b: "RunResult") -> dict[str, Pair]:
    """Return every figure that at least one of the runs has."""
    found = {name: (getattr(a, name), getattr(b, name)) for name in ("steps", "tokens", "train_loss", "val_loss")}
    found["tokens_per_second"] = (a.speed.tokens_per_second, b.speed.tokens_per_second)
    found["step_seconds"] = (_median(a), _median(b))
    for name in ("tensors_peak_bytes", "reserved_peak_bytes", "process_peak_bytes", "heap_peak_bytes", "allocations"):
        found[name] = (getattr(a.memory, name), getattr(b.memory, name))
    return {name: pair for name, pair in found.items() if pair != (None, None)}


def changed_rows(pairs: Mapping[str, Pair]) -> Iterator[tuple[str, str, str, str]]:
    """Yield rows of name, first value, second value, and the second's change against the first."""
    for name, (first, second) in pairs.items():
        known = first is not None and second is not None and first != 0
        yield name, _shown(name, first), _shown(name, second), format_percent(second / first - 1) if known else UNKNOWN


def _median(result: "RunResult") -> float | None:
    return None if result.speed.step_seconds is None else result.speed.step_seconds.median


def _shown(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return amount(value)
    if name == "step_seconds" and value is not None:
        return format_seconds(value)
    return str(value) if isinstance(value, int) else figure(value)


def _unlike(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, Pair]:
    keys = dict.fromkeys([*ours, *theirs])
    pairs = {key: (ours.get(key, UNKNOWN), theirs.get(key, UNKNOWN)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
