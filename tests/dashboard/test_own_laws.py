"""Laws of the files in the home's folder of points: which are read, and which are not, with a reason."""

import os
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from assay.config.home import Home
from assay.dashboard.app import build_app
from assay.dashboard.own_laws import faults, files, law_of
from assay.errors import UsageError

ROWS = [
    f"{size:g},{tokens:g},{1.7 + 406 / size**0.34 + 410 / tokens**0.28}"
    for size in (1e7, 1e8, 1e9)
    for tokens in (1e9, 1e10, 1e11)
]
POINTS = "parameters,tokens,loss\n" + "".join(f"{row}\n" for row in ROWS)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.points.mkdir(parents=True)
    return found


def test_a_file_is_fitted_whatever_the_case_of_its_suffix(home: Home) -> None:
    (home.points / "mine.CSV").write_text(POINTS)
    assert files(home) == ["mine.CSV"]
    assert len(law_of("points:mine.CSV", home).law.fit.points) == 9


def test_without_a_folder_there_is_no_file(tmp_path: Path) -> None:
    assert files(Home(tmp_path)) == faults(Home(tmp_path)) == []


def test_links_folders_pipes_and_names_that_are_no_text_are_said_and_not_read(home: Home, tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text(POINTS)
    (home.points / "link.csv").symlink_to(outside)
    (home.points / "folder.csv").mkdir()
    os.mkfifo(home.points / "pipe.csv")
    (Path(os.fsdecode(os.fsencode(home.points) + b"/\xff.csv"))).write_text(POINTS)
    (home.points / "notes.txt").write_text("text")
    assert files(home) == []
    said = faults(home)
    assert [one.split(" is not read, because ")[1] for one in said] == [
        "it is not a file.",
        "it is a link; put the file itself there.",
        "it is not a file.",
        "its name is not plain text; rename it.",
    ]
    page = TestClient(build_app(home.root), base_url="http://127.0.0.1").get("/scaling")
    assert page.status_code == 200
    assert "link.csv" in page.text
    with pytest.raises(UsageError, match=r"there is no file 'link.csv'"):
        law_of("points:link.csv", home)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (POINTS + "1e9,1e9,3\n" * 1000, "1,010 lines long"),
        (POINTS + "1e9,1e9,3\r" * 1000, "1,010 lines long"),
        (POINTS + "1e9,1e9,3\r\n" * 1000, "1,010 lines long"),
        ("x" * ((1 << 20) + 1), "longer than 1 MiB"),
    ],
    ids=["lines", "lines of an old Mac", "lines of Windows", "bytes"],
)
def test_a_file_that_takes_long_is_left_to_the_command(home: Home, text: str, size: str) -> None:
    (home.points / "large.csv").write_text(text, newline="")
    with pytest.raises(
        UsageError, match=f"large.csv is {size}, and this page fits at most 1,000 points; `assay scaling"
    ):
        law_of("points:large.csv", home)
