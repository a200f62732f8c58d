"""Answers of laws in the browser: those of `assay scaling optimal`, for published laws and for a study's own."""

import os
import random
import shlex
from math import exp
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from starlette.testclient import TestClient

from assay.api.optimal import FITTED, optimal
from assay.config.home import Home
from assay.dashboard.app import build_app
from assay.dashboard.own_laws import POINTS, STUDY, files, studies
from assay.dashboard.scaling import LawQuestion, answer, read
from assay.errors import UsageError
from assay.studies.folder import StudyFolder
from support.dashboards import client
from support.scaled import LAW, scaled_record

STUDIED = "20261101-101010-abcde12"
FILE = "their runs.csv"


def published() -> str:
    """Points of a known law, as a paper would print them."""
    draw = random.Random(0)
    sizes = [(10**power, 10**power * ratio) for power in (6, 6.5, 7, 7.5) for ratio in (5, 15, 45)]
    rows = [(n, d, float(LAW.loss(n, d)) * exp(draw.gauss(0, 0.0005))) for n, d in sizes]
    return "\n".join(["parameters,tokens,loss", *(f"{n:.0f},{d:.0f},{loss:.6f}" for n, d, loss in rows)]) + "\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a study of scaling whose losses follow a known law, and a file of points on that law."""
    found = Home(tmp_path_factory.mktemp("home"))
    found.points.mkdir()
    (found.points / FILE).write_text(published())
    (found.points / "broken.csv").write_text("parameters,tokens\n1e6,1e8\n")
    folder = StudyFolder(found.reports / STUDIED)
    folder.path.mkdir(parents=True)
    folder.write_record(scaled_record(noise=0.0005).model_copy(update={"id": STUDIED}))
    return found


def test_a_published_law_answers_as_the_command_does(home: Home) -> None:
    found = answer(LawQuestion(flops=1e23, price=2.5), home)
    best = optimal(flops=1e23).answers["Besiroglu"].optimum
    assert best is not None
    assert found.losses is not None
    assert found.losses["curves"][0]["best"] == pytest.approx([best.parameters, best.loss])
    rows = dict(found.facts.rows)
    assert rows["parameters, N"] == "29.4B, 23.5B to 36.9B (80 %)"
    # 1e23 FLOPs at 40 % of 8 × 989 TFLOP/s are 366 days, and 8 × 8,777 hours at 2.5 each.
    assert rows["time"].startswith("365.7 days")
    assert rows["money"].startswith("175,5")


def test_the_law_of_a_study_is_that_of_its_runs(home: Home) -> None:
    assert list(studies(home)) == [STUDIED]
    found = answer(LawQuestion(law=STUDY + STUDIED, flops=1e12), home)
    rows = dict(found.facts.rows)
    true = float(LAW.loss(*LAW.optimum(1e12)))
    loss, low, high = (float(rows["loss"].replace(",", "").split()[place]) for place in (0, 1, 3))
    assert loss == pytest.approx(true, rel=0.01)
    assert low < true < high
    assert found.losses is not None
    runs = [run for curve in found.losses["curves"] for run in curve["runs"]]
    assert len(runs) == 31
    (line,) = (one for one in found.sizes["lines"] if one["chosen"])
    assert line["name"] == FITTED


def test_the_law_of_a_file_is_that_of_its_points(home: Home) -> None:
    assert files(home) == ["broken.csv", FILE]
    found = answer(LawQuestion(law=POINTS + FILE, flops=1e17), home)
    best = optimal(flops=1e17, points=home.points / FILE).answers[FITTED].optimum
    assert best is not None
    assert found.losses is not None
    curves = found.losses["curves"]
    assert curves[0]["best"] == pytest.approx([best.parameters, best.loss])
    assert sum(len(curve["runs"]) for curve in curves) == 12
    assert all(curve["name"].startswith("about ") for curve in curves[1:])
    loss, low, high = (float(dict(found.facts.rows)["loss"].replace(",", "").split()[place]) for place in (0, 1, 3))
    assert low < float(LAW.loss(*LAW.optimum(1e17))) < high
    assert loss == pytest.approx(float(LAW.loss(*LAW.optimum(1e17))), rel=0.01)


def test_a_file_that_changed_is_fitted_again(tmp_path: Path) -> None:
    place = Home(tmp_path)
    place.points.mkdir()
    (place.points / "a.csv").write_text(published())
    question = LawQuestion(law=f"{POINTS}a.csv", flops=1e17)
    before = answer(question, place).losses
    (place.points / "a.csv").write_text("\n".join(published().splitlines()[:-1]) + "\n")
    os.utime(place.points / "a.csv", ns=(1, 1))
    assert answer(question, place).losses != before


@pytest.mark.parametrize("name", ["../store.sqlite", "/etc/passwd", "", "broken.csv", "nothing.csv"])
def test_a_file_without_a_law_is_a_sentence(name: str, home: Home) -> None:
    with pytest.raises(UsageError):
        answer(LawQuestion(law=POINTS + name), home)


def test_a_law_is_fitted_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    question = LawQuestion(law=STUDY + STUDIED, flops=1e12)
    answer(question, home)
    monkeypatch.setattr("assay.dashboard.own_laws.answer", lambda *given, **options: pytest.fail("fitted again"))
    assert answer(LawQuestion(law=STUDY + STUDIED, flops=2e12), home).facts


def test_a_budget_far_beyond_a_law_is_refused(home: Home) -> None:
    rows = dict(answer(LawQuestion(law="Kaplan, C_min = C", flops=1e26), home).facts.rows)
    assert "10,000 times" in rows["refused"]


def test_a_law_without_a_loss_has_no_figure_of_it(home: Home) -> None:
    found = answer(LawQuestion(law="Hoffmann 1"), home)
    assert found.losses is None
    assert dict(found.facts.rows)["loss"] == "this law states no loss"


def test_rows_of_published_tables_are_drawn_with_their_laws(home: Home) -> None:
    lines = {line["name"]: line["rows"] for line in answer(LawQuestion(), home).sizes["lines"]}
    assert {name for name, rows in lines.items() if rows} == {"Hoffmann 1", "Hoffmann 2", "Hoffmann 3"}
    # Table 3 of the paper: a model of 10 billion parameters takes 1.23e22 FLOPs and 205.1 billion tokens.
    flops, parameters = lines["Hoffmann 1"][1]
    assert parameters == 10e9
    assert flops == pytest.approx(1.23e22, rel=0.01)


def test_an_address_keeps_a_question() -> None:
    question = LawQuestion(law="Hoffmann 2", flops=1.23e22, device="a100", devices=16, mfu=0.3, price=1.5)
    assert read(dict(parse_qsl(question.query))) == question
    assert LawQuestion().query == ""


def test_the_command_asks_the_same(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.cli.main import app

    monkeypatch.setenv("ASSAY_HOME", str(home.root))
    own = (LawQuestion(law=STUDY + STUDIED, flops=1e12), LawQuestion(law=POINTS + FILE, flops=1e17))
    for question in (LawQuestion(flops=1.234e22, price=2), *own):
        assert not app([*shlex.split(question.command(home))[1:], "--json"], standalone_mode=False)
    assert "1.234e22" in LawQuestion(flops=1.234e22).command(home)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("law", "Moore"),
        ("law", "<script>"),
        ("flops", "1e40"),
        ("flops", "nan"),
        ("flops", "-1"),
        ("mfu", "2"),
        ("mfu", "40%"),
        ("price", "-1"),
        ("devices", "0"),
        ("device", "abacus"),
    ],
)
def test_an_impossible_request_is_a_sentence(name: str, value: str) -> None:
    with pytest.raises(UsageError):
        read({name: value})


@pytest.mark.parametrize("name", ["../../etc", "20261101-nope", "/"])
def test_a_study_that_is_not_there_is_a_sentence(name: str, home: Home) -> None:
    with pytest.raises(UsageError):
        answer(LawQuestion(law=STUDY + name), home)


def test_the_page_says_why_it_has_no_published_runs(home: Home) -> None:
    page = client(home).get("/scaling").text
    assert "assay ships no published runs: " in page
    assert "read off a figure" in page
    assert f'<option value="points:{FILE}">' in page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(build_app(tmp_path_factory.mktemp("home")), base_url="http://127.0.0.1")


def test_the_page_answers_without_scripts(browser: TestClient) -> None:
    page = browser.get("/scaling?flops=1e22&law=Hoffmann+2")
    assert page.status_code == 200
    assert "assay scaling optimal --flops 1e22" in page.text


def test_an_answer_has_its_address_its_text_and_its_figures(browser: TestClient) -> None:
    found = browser.get("/scaling/answer?flops=1e22").json()
    assert found["query"] == "flops=1e22"
    assert found["said"].startswith("N ")
    assert {line["name"] for line in found["sizes"]["lines"]} >= {"Besiroglu", "Hoffmann 1"}
    assert len(found["losses"]["curves"]) == 1


@pytest.mark.parametrize("name", ["law", "flops", "device", "devices", "mfu", "price"])
@pytest.mark.parametrize("address", ["/scaling", "/scaling/answer"])
def test_text_of_an_address_stays_text(address: str, name: str, browser: TestClient) -> None:
    found = browser.get(address, params={name: "study:</script><script>alert(1)</script>"})
    assert found.status_code == 200
    html = found.text if address == "/scaling" else found.json()["html"]
    assert "<script>alert" not in html
