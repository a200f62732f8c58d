"""The view *Runs*: queries choose the runs that a plain loop chooses; runs over each other have their points."""

import json

import pytest

from assay.config import Home
from assay.dashboard.runs.views import TITLES, Query, choices, choose, columns, run_lines
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.index import Entry
from assay.store.result import begun_result
from support.dashboards import client
from support.records import made, say, step


def entry(number: int, **fields: object) -> Entry:
    stack = [[], ["sdpa_attention:backend=auto"], ["sdpa_attention", "bf16_mixed"]][number % 3]
    values = {
        "run": f"20261124-{number:06d}-abc",
        "status": ["done", "failed"][number % 2],
        "stamp": 1,
        "preset": "demo",
        "optimizations": json.dumps(stack),
        "val_loss": None if number % 5 == 0 else 4.0 - number / 1000,
        **fields,
    }
    return Entry(**values)  # type: ignore[arg-type]


ENTRIES = [entry(number) for number in range(250)]


def ids(query: Query, study: frozenset[str] | None = None) -> list[str]:
    found, page = [], 1
    while True:
        chosen = choose(ENTRIES, query._replace(page=str(page)), study)
        found += [one.run for one in chosen.entries]
        if page == chosen.pages:
            assert len(found) == chosen.matching
            return found
        page += 1


def test_newest_first_and_every_run_once() -> None:
    assert ids(Query()) == sorted((one.run for one in ENTRIES), reverse=True)


def test_menus_and_words_are_all_required() -> None:
    query = Query(q="DEMO  0001", status="failed", optimization="bf16_mixed")
    assert ids(query) == [
        one.run
        for one in reversed(ENTRIES)
        if "0001" in one.run and one.status == "failed" and "bf16_mixed" in one.optimizations
    ]
    assert ids(Query(q="demo nowhere")) == []


def test_a_technique_is_found_with_its_parameters_and_the_baseline_as_none() -> None:
    assert len(ids(Query(optimization="sdpa_attention"))) == sum("sdpa" in one.optimizations for one in ENTRIES)
    assert len(ids(Query(optimization="none"))) == sum(one.optimizations == "[]" for one in ENTRIES)
    assert choices(ENTRIES) == (["done", "failed"], ["bf16_mixed", "none", "sdpa_attention"])


def test_runs_of_a_study() -> None:
    study = frozenset({ENTRIES[3].run, ENTRIES[7].run, "gone"})
    assert ids(Query(study="x"), study) == [ENTRIES[7].run, ENTRIES[3].run]


@pytest.mark.parametrize("order", ["up", "down"])
def test_runs_without_the_figure_are_last(order: str) -> None:
    known = {one.run: one.val_loss for one in ENTRIES}
    losses = [known[run] for run in ids(Query(sort="val loss", order=order))]
    assert losses[-50:] == [None] * 50
    first = [one for one in losses[:-50] if one is not None]
    assert first == sorted(first, reverse=order == "down")


@pytest.mark.parametrize("sort", TITLES)
def test_every_column_sorts(sort: str) -> None:
    assert len(ids(Query(sort=sort))) == len(ENTRIES)


def test_a_page_out_of_reach_is_the_nearest() -> None:
    assert choose(ENTRIES, Query(page="99")).page == 3
    assert choose(ENTRIES, Query(page="0")).page == 1
    assert choose(ENTRIES, Query(page="x")).page == 1


def test_an_address_keeps_the_state_and_reads_back() -> None:
    query = Query(q="a&b", status="done", sort="val loss", order="up", page="2")
    address = query.address(page="3")
    assert address == "/runs?q=a%26b&status=done&sort=val+loss&order=up&page=3"
    assert Query().address() == "/runs"
    assert Query.of({"q": "x" * 500, "sort": "__class__", "other": "1"}) == Query(q="x" * 200)


def test_a_heading_turns_its_own_order_round() -> None:
    headings = {one["title"]: one for one in columns(Query(sort="steps"))}
    assert headings["steps"]["sorted"] == "descending"
    assert headings["steps"]["address"] == "/runs?sort=steps&order=up"
    assert headings["val loss"]["address"] == "/runs?sort=val+loss"


def test_a_line_has_a_text_for_each_heading() -> None:
    (line,) = run_lines([entry(1, corpus="x" * 1000)])
    assert len(line["cells"]) + 1 == len(columns(Query()))
    assert max(map(len, line["cells"])) == 200


def test_cells_are_one_line_unless_they_are_asked_for() -> None:
    studies = {ENTRIES[3].run: "study", ENTRIES[7].run: "study"}
    plain = choose(ENTRIES, Query(), None, studies)
    assert plain.matching == len(ENTRIES) - 1
    assert choose(ENTRIES, Query(cells="1"), None, studies).matching == len(ENTRIES)
    assert choose(ENTRIES, Query(study="study"), frozenset(studies), studies).matching == 2
    lines = run_lines([ENTRIES[0], *(one for one in plain.entries if one.run == "study")], {"study"})
    assert [line["address"] for line in lines[-1:]] == ["/studies/study"]
    assert lines[0]["address"] == f"/runs/{ENTRIES[0].run}"


def test_two_runs_have_their_points(home: Home, ready_run: ReadyRun) -> None:
    folders = [made(home, ready_run) for _ in range(2)]
    for folder, count in zip(folders, (2, 3), strict=True):
        say(folder, *map(step, range(count)))
        folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE}))
    query = "&".join(f"run={folder.id}" for folder in folders)
    browser = client(home)
    found = browser.get(f"/runs/overlaid?{query}&part=points").json()
    assert [(one["run"], len(one["steps"])) for one in found["runs"]] == [
        (folders[0].id, 2),
        (folders[1].id, 3),
    ]
    assert not found["live"]
    page = browser.get(f"/runs/overlaid?{query}").text
    assert f"/runs/{folders[0].id}?against={folders[1].id}" in page
    assert page.count('<th scope="row"') == 2


@pytest.mark.parametrize(
    ("query", "said"),
    [("", "tick 2 to 8 runs"), ("run=a", "there is no run"), ("run=../x&run=../y", "there is no run")],
)
def test_a_choice_that_is_not_possible_is_a_sentence(query: str, said: str, home: Home) -> None:
    answer = client(home).get(f"/runs/overlaid?{query}")
    assert answer.status_code == 200
    assert said in answer.text.lower()
    assert "plot-loss" not in answer.text


def test_the_same_run_twice_is_one(home: Home, ready_run: ReadyRun) -> None:
    run = made(home, ready_run).id
    assert "not 1" in client(home).get(f"/runs/overlaid?run={run}&run={run}").text


def test_runs_can_be_ticked_and_studies_cannot(home: Home, ready_run: ReadyRun) -> None:
    run = made(home, ready_run).id
    assert f'name="run" value="{run}" form="overlay"' in client(home).get("/runs").text
