"""Runs over each other: the points of each, and the sentence for runs that cannot be laid so."""

import pytest

from assay.config import Home
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.result import begun_result
from support.dashboards import client
from support.records import made, say, step


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
