"""The list of runs says what a comparison's page says of them: which were disturbed, and which were nudged."""

import pytest

from assay.config import Home
from assay.records.evidence import Evidence, ValueProof
from assay.records.timing import Block
from assay.report.runs import COLUMNS, brief, row, unlike
from assay.store.index import Entry, entry_of
from support.records import result_of


def listed(home: Home, nudge: int = 0, others: tuple[float, ...] = ()) -> Entry:
    """Return the entry of a run whose blocks of a second on two cores had other programs for these seconds."""
    result = result_of(home, "20261124-080000-abcdef-0001")
    blocks = [
        Block(steps=5, seconds=1.0, median_step_seconds=0.2, tokens=40, others_seconds=one, cores=2) for one in others
    ]
    config = result.config.model_copy(update={"nudge": nudge})
    return entry_of(result.model_copy(update={"config": config, "blocks": tuple(blocks)}), 1)


def shown(entry: Entry) -> tuple[str, str]:
    cells = dict(zip(COLUMNS, row(entry), strict=True))
    return cells["status"], cells["with"]


def test_a_run_that_was_left_alone_has_its_status_and_its_stack(home: Home) -> None:
    assert shown(listed(home, others=(0.0, 0.1, 0.01))) == ("done", "none")
    assert shown(listed(home)) == ("done", "none")


def test_a_disturbed_run_says_in_how_many_of_its_blocks(home: Home) -> None:
    found = listed(home, others=(0.0, 0.9, 0.1, 1.5))
    assert shown(found) == ("done (disturbed 2/4)", "none")
    assert (brief(found)["status"], brief(found)["blocks"], brief(found)["disturbed_blocks"]) == ("done", 4, 2)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (ValueProof(unchecked="training.check_values=false"), "done (not proven)"),
        (ValueProof(verdict=True, steps=3, middle_steps=8, since=0, replayed=2), "done"),
    ],
)
def test_a_run_whose_values_were_not_compared_is_not_proven(home: Home, values: ValueProof, told: str) -> None:
    result = result_of(home, "20261124-080000-abcdef-0001")
    evidence = (Evidence(optimization="sdpa_attention", observed="3 of 3 calls", verdict=True),)
    found = entry_of(result.model_copy(update={"evidence": evidence, "values": values, "proven_until": "end"}), 1)
    assert shown(found)[0] == told
    assert brief(found)["unproven"] is ("not proven" in told)


def test_a_nudged_run_says_so(home: Home) -> None:
    assert shown(listed(home, nudge=1)) == ("done", "none (nudged)")
    assert brief(listed(home, nudge=3))["nudge"] == 3


def test_losses_of_unlike_evaluations_are_marked() -> None:
    def run(name: str, **fields: object) -> Entry:
        values = {"status": "done", "stamp": 1, "val_loss": 3.9, "corpus_digest": "x", "context_length": 8, **fields}
        return Entry(run=name, **values)  # type: ignore[arg-type]

    alike = [run("a", val_targets=64), run("b", val_targets=64), run("c", val_loss=None)]
    assert unlike(alike) == {}
    assert unlike([*alike, run("killed", corpus_digest=None)]) == {}
    others = [run("d", val_targets=32), run("e", val_targets=64, context_length=4), run("f", corpus_digest="y")]
    assert unlike([*alike, *others]) == {"a": "a", "b": "a", "d": "b", "e": "c", "f": "d"}
    assert dict(zip(COLUMNS, row(alike[0], "a"), strict=True))["val loss"] == "3.9000 a"
