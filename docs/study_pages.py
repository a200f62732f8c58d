"""Write the readable part of the studies that were run, each from its record, so that all have the present layout.

    python docs/study_pages.py [NAME …]              write it for all of them, or for some
    python docs/study_pages.py --check [NAME …]      name the files that differ
    python docs/study_pages.py --pages DIR [NAME …]  write each page, with its data, into DIR/NAME
    python docs/study_pages.py --pack [NAME …]       write each record anew, with the digits that its page needs

`docs/studies/NAME/study.tar.xz` has the sealed record of a study, from which all else comes. The part of its README
below `MARK` is written from it, and so are its figures; the text above is ours. Two studies of scaling have no record:
theirs comes from `points.csv`, their sizes, tokens and losses, and they have no page. With the versions of
`constraints.txt` the same record gives the same text, but for the last digits of intervals, which depend on the
processor.
"""

import csv
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from assay.api import scaling
from assay.api.runs import export_archive, import_archive
from assay.api.study import show
from assay.config import Home
from assay.records.study import CellResult, ComparisonRecord
from assay.report import view
from assay.report.kit.drawing import LIGHT, PRINTED
from assay.report.kit.view import write_page
from assay.report.study.handout import Handout, answer_blocks, handout, markdown_block
from assay.scaling.points import read_points
from assay.studies.folder import find

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.report.study.view import StudyView

STUDIES = Path(__file__).parent / "studies"
ARCHIVE, POINTS = "study.tar.xz", "points.csv"
MARK = "<!-- What follows is written by docs/study_pages.py. -->"
PAGE = ("index.html", "rows.csv", "cells.csv", "losses.parquet")
"""Files of a page; `answer.json` is none, because it has every field of a record and changes with each new one."""
LAW = "droppo"
"""The law that both studies of scaling had chosen before they had results."""
DOTS = 80
"""Dots an inch of a README's figures."""
LOSS_DIGITS, TIME_DIGITS = 5, 4
"""Digits of a step's loss and seconds in a packed record."""


@contextmanager
def _opened(archive: Path) -> "Iterator[tuple[StudyView, Home]]":
    """The view of a study, and a home of its own that has its record."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        (study,) = import_archive(archive, home=home).new
        yield view(show(study.removeprefix("reports/"), home)), home  # type: ignore[misc]


def page_files(archive: Path) -> dict[str, bytes]:
    """Return the files of a study's page by name."""
    with _opened(archive) as (shown, home):
        place = write_page(shown, home).parent
        return {name: (place / name).read_bytes() for name in PAGE}


def packed(archive: Path) -> bytes:
    """Return the archive of a study with fewer digits in its curves, which are most of it.

    Raises `ValueError` if its answer would be another one.
    """
    with _opened(archive) as (shown, home):
        folder = find(home, shown.comparison.record.id)
        whole = folder.record()
        assert whole is not None
        folder.write_record(_with_fewer_digits(whole))
        again: StudyView = view(show(folder.id, home))  # type: ignore[assignment]
        if list(_told(again.values())) != list(_told(shown.values())):
            raise ValueError(f"{archive}: its answer needs more digits")
        export_archive(home.root / ARCHIVE, studies=shown.comparison.record.id, without_runs=True, home=home)
        return (home.root / ARCHIVE).read_bytes()


def _with_fewer_digits(record: ComparisonRecord) -> ComparisonRecord:
    cells, nudged = (tuple(map(_of_fewer_digits, some)) for some in (record.cells, record.nudged))
    return record.model_copy(update={"cells": cells, "nudged": nudged})


def _of_fewer_digits(one: CellResult) -> CellResult:
    losses = tuple(loss if loss is None else float(f"{loss:.{LOSS_DIGITS}g}") for loss in one.curve.train_loss)
    seconds = tuple(float(f"{spent:.{TIME_DIGITS}g}") for spent in one.curve.step_seconds)
    return one.model_copy(
        update={"curve": one.curve.model_copy(update={"train_loss": losses, "step_seconds": seconds})}
    )


def _told(answer: object) -> Iterator[object]:
    """Yield what an answer says: its words, and its numbers to three digits."""
    if isinstance(answer, Mapping):
        for name, one in answer.items():
            yield name
            yield from _told(one)
    elif isinstance(answer, list | tuple):
        for one in answer:
            yield from _told(one)
    else:
        yield f"{answer:.3g}" if isinstance(answer, float) else answer


def readable(folder: Path) -> dict[str, bytes]:
    """Return README and figures of a study by name."""
    record = folder / ARCHIVE
    written, figures = _of_record(record) if record.exists() else _of_points(folder / POINTS)
    own, _, _ = (folder / "README.md").read_text(encoding="utf-8").partition(MARK)
    return {"README.md": f"{own.rstrip()}\n\n{MARK}\n\n{written}\n".encode(), **figures}


def _of_record(archive: Path) -> tuple[str, dict[str, bytes]]:
    """Return what a README shows of a record, and its figures by name."""
    with _opened(archive) as (shown, _):
        found = handout(shown)
        figures = {f"{one.name}.png": _png(one.figure, DOTS) for one in found.pictures}
        return _written(archive.parent.name, found), figures


def _of_points(points: Path) -> tuple[str, dict[str, bytes]]:
    """Return what a README shows of the points of a study of scaling: the law that is fitted to them today."""
    with points.open(encoding="utf-8") as stream:
        roles = np.array([row["role"] for row in csv.DictReader(stream)])
    read = read_points(points)
    largest = read.compute[roles == "fitted"].max()
    law = scaling.fit(read.where(np.isin(roles, ("fitted", "held out"))), law=LAW, below_flops=1.01 * largest)
    blocks = [markdown_block(one) for one in law.report()]
    text = "\n\n".join(["## The law of its points", "![Losses and the law](law.png)", *blocks])
    return text, {"law.png": _png(law.plot(), DOTS)}


def _written(name: str, found: Handout) -> str:
    """Return the part of a README that comes from the record: the answer with its figures and its table."""
    commands = (
        f"assay runs import docs/studies/{name}/{ARCHIVE}",
        f"assay study show {name} --full",
        f"assay study report {name}      its page: every figure and section, and tables as data",
        f"assay study machines {name} last      against your own run of it",
    )
    blocks = ["## The answer of its record", f"> {found.question}", *answer_blocks(found, ""), "## All of it"]
    return "\n\n".join([*filter(None, blocks), "\n".join(["```", *commands, "```"])])


def _png(figure: "Figure", dots: int) -> bytes:
    """Return a figure as a small PNG of a few colours."""
    from PIL import Image

    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=dots, metadata={"Software": None})
    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette())
    whole = Image.open(raw).convert("RGB")
    whole.quantize(palette=palette, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return small.getvalue()


def _palette() -> list[int]:
    """Return red, green and blue of each colour of a figure, whole and in two steps towards the white of the paper."""
    whole = [bytes.fromhex(one[1:]) for one in (*PRINTED.values(), *LIGHT)]
    return [round(255 - part * (255 - value)) for part in (1, 0.67, 0.33) for one in whole for value in one]


_FRACTION = re.compile(rb"-?\d+(?:\.\d+(?:e-?\d+)?|e-\d+)")
_LEAST = 1e-9
"""Figures below it are errors of rounding."""


def stale(folder: Path, files: dict[str, bytes]) -> list[str]:
    """Return the files beside a record that are missing, not written, or of another text than is written now.

    Figures are compared by name: their bytes depend on the fonts of the machine.
    """
    here = {one.name: one.read_bytes() for one in folder.iterdir() if one.name not in (ARCHIVE, POINTS)}
    texts = [name for name in here.keys() & files.keys() if not name.endswith(".png")]
    different = {name for name in texts if _rounded(here[name]) != _rounded(files[name])}
    return sorted((here.keys() ^ files.keys()) | different)


def _rounded(text: bytes) -> bytes:
    """Return a text with nine digits of each figure."""
    return _FRACTION.sub(_digits, text)


def _digits(match: "re.Match[bytes]") -> bytes:
    value = float(match[0])
    return b"0" if abs(value) < _LEAST else f"{value:.9g}".encode()


def _write(folder: Path, files: dict[str, bytes]) -> None:
    different = stale(folder, files)
    for name, content in files.items():
        if name in different or name.endswith(".png"):
            (folder / name).write_bytes(content)
    for name in different:
        if name not in files:
            (folder / name).unlink()


def write_pages(folders: list[Path], place: Path) -> None:
    """Write the page of each study that has a record, with its data, into a folder of its name.

    It is `page.html` there, because the site has the README as `index.html`.
    """
    for folder in folders:
        if (folder / ARCHIVE).exists():
            (made := place / folder.name).mkdir(parents=True, exist_ok=True)
            for name, content in page_files(folder / ARCHIVE).items():
                (made / ("page.html" if name == "index.html" else name)).write_bytes(content)


def main(words: list[str]) -> int:
    """Write or compare what is asked for; returns the exit code. A user's own metrics have no column in it."""
    os.environ.pop("ASSAY_EXTENSIONS", None)
    pages = Path(words.pop(words.index("--pages") + 1)) if "--pages" in words else None
    names = [word for word in words if not word.startswith("--")]
    folders = [STUDIES / name for name in names] or sorted(one.parent for one in STUDIES.glob("*/README.md"))
    if pages is not None:
        write_pages(folders, pages)
        return 0
    if "--pack" in words:
        for archive in (folder / ARCHIVE for folder in folders if (folder / ARCHIVE).exists()):
            archive.write_bytes(packed(archive))
        return 0
    different = []
    for folder in folders:
        files = readable(folder)
        different += [str((folder / name).relative_to(STUDIES.parents[1])) for name in stale(folder, files)]
        if "--check" not in words:
            _write(folder, files)
    print("\n".join(different) or "all are current")
    return 1 if "--check" in words and different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
