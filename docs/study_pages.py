"""Write the pages of the studies that were run anew, each from its archive, so that all have the present layout.

    python docs/study_pages.py [NAME …]            write them all, or some
    python docs/study_pages.py --check [NAME …]    name those that differ

`docs/studies/NAME/study.tar.gz` has the records of a study. They are brought into a home of their own, and the page and
its data are made there; `KEPT` of them are published. With the versions of `constraints.txt` the same record gives the
same bytes, but for the last digits of intervals, which depend on the processor. A folder without an archive is left as
it is.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from assay.api.runs import import_archive
from assay.api.study import show
from assay.config import Home
from assay.report.kit.page import write_page

STUDIES = Path(__file__).parent / "studies"
ARCHIVE = "study.tar.gz"
KEPT = ("index.html", "rows.csv", "cells.csv", "losses.parquet")
"""Published files; `answer.json` is none, because it has every field of a record and changes with each new one."""
_FRACTION = re.compile(rb"-?\d+(?:\.\d+(?:e-?\d+)?|e-\d+)")
_LEAST = 1e-9
"""Figures below it are errors of rounding."""


def made(archive: Path) -> dict[str, bytes]:
    """Return the published files of a study by name."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        (study,) = (
            name.removeprefix("reports/")
            for name in import_archive(archive, home=home).new
            if name.startswith("reports/")
        )
        page = write_page(show(study, home), home)
        return {name: (page.parent / name).read_bytes() for name in KEPT}


def stale(archive: Path, files: dict[str, bytes]) -> list[str]:
    """Return the files beside an archive that are missing, or differ from those made, or are not among them."""
    here = {one.name: one.read_bytes() for one in archive.parent.iterdir() if one.name != ARCHIVE}
    both = here.keys() & files.keys()
    different = {name for name in both if _rounded(name, here[name]) != _rounded(name, files[name])}
    return sorted((here.keys() ^ files.keys()) | different)


def _rounded(name: str, content: bytes) -> bytes:
    """Return the content of a table with nine digits of each figure, and that of another file as it is."""
    return _FRACTION.sub(_digits, content) if name.endswith(".csv") else content


def _digits(match: "re.Match[bytes]") -> bytes:
    value = float(match[0])
    return b"0" if abs(value) < _LEAST else f"{value:.9g}".encode()


def main(words: list[str]) -> int:
    """Write the pages, or compare them; returns the exit code. A user's own metrics have no column in them."""
    os.environ.pop("ASSAY_EXTENSIONS", None)
    check, names = "--check" in words, [word for word in words if word != "--check"]
    found = [STUDIES / name / ARCHIVE for name in names] or sorted(STUDIES.glob(f"*/{ARCHIVE}"))
    different = []
    for archive in found:
        files = made(archive)
        for name in stale(archive, files):
            place = archive.parent / name
            different.append(place.relative_to(STUDIES.parents[1]))
            if not check and name in files:
                place.write_bytes(files[name])
            elif not check:
                place.unlink()
    print(*different, sep="\n")
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
