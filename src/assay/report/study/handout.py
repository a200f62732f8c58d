"""A report of a study to hand in: question, answer, method, table, two figures, faults of the original, and limits.

It is written as Markdown or HTML with its figures beside it, each as PNG and SVG. As PDF it is the HTML, printed by a
Chromium that is found on the machine.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import UsageError, legible
from assay.files import write_file
from assay.report.comparison.figures import CAPTIONS, TITLES
from assay.report.comparison.row_table import method_of, size
from assay.report.kit.blocks import Block, Table
from assay.report.kit.drawing import save, together, with_print_colours
from assay.report.kit.view import check_page, no_break, render_template
from assay.report.study.lead_figure import lead_figure
from assay.report.study.sections.answer import no_answer
from assay.report.study.sections.stated import document_facts, faults
from assay.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.report.study.view import StudyView

_MARK = "<!-- a report of assay -->"
FORMATS = {"md": _MARK.encode(), "html": b"<!doctype html>", "pdf": b"%PDF"}
"""Forms of a report, with the bytes that it begins with; a file that begins with others is not replaced."""


class Picture(NamedTuple):
    """A figure of the report."""

    name: str
    """Stem of its files."""
    title: str
    caption: str
    figure: "Figure"


class Part(NamedTuple):
    """A part of the report under a heading."""

    heading: str
    blocks: tuple[Block, ...]


class Handout(NamedTuple):
    """A report."""

    title: str
    question: str
    sentences: tuple[str, ...]
    pictures: tuple[Picture, ...]
    table: Table
    parts: tuple[Part, ...]


def handout(study: "StudyView") -> Handout:
    """Return the report of a study."""
    record = study.comparison.record
    return Handout(
        title=record.name or record.title,
        question=record.question,
        sentences=study.sentences or (no_answer(study.comparison),),
        pictures=tuple(pictures(study)),
        table=summary_table(study),
        parts=tuple(part for part in _parts(study) if part.blocks),
    )


def pictures(study: "StudyView") -> Iterator[Picture]:
    """Yield the figure that answers the question, and the changes of all rows with their intervals."""
    lead = lead_figure(study)
    drawn = None if lead is None else together(lead.panels)
    if lead is not None and drawn is not None:
        yield Picture("answer", lead.title, lead.caption, with_print_colours(drawn))
    changes = study.figure("changes")
    if changes is not None:
        yield Picture("changes", TITLES["changes"], CAPTIONS["changes"], changes)


def summary_table(study: "StudyView") -> Table:
    """Return the small table of all rows, with predicted changes."""
    found = study.summary
    columns = [name for title in found.titles for name in (title, f"{title}, predicted")]
    rows = (
        (
            f"{one.row.label} ({one.remark})" if one.row.status.value != "done" else one.row.label,
            *(text for change in one.changes for text in (change.text, change.predicted)),
            one.loss,
            one.proof,
        )
        for one in found.rows
    )
    return Table.of(("against the baseline", *columns, "loss", "proof"), rows, (*columns, "loss"))


def _parts(study: "StudyView") -> Iterator[Part]:
    comparison = study.comparison
    record, here = comparison.record, comparison.environment
    machine = ""
    if here is not None:
        memory = format_bytes(here.memory_bytes)
        machine = f"It ran on {here.processor} with {here.cores} cores and {memory}, with torch {here.torch}."
    base = f"The base is {record.title}, with {size(comparison)}."
    yield Part("Method", (base, method_of(comparison), machine))
    if record.published is not None:
        wrong = tuple(f"– {one}" for one in faults(record.published))
        yield Part("What was wrong in the original", (document_facts(record.published), *wrong) if wrong else ())
    flags = (f"{row.label}: {flag}." for row in comparison.rows for flag in row.flags)
    yield Part("Limits", (*comparison.caveats, *flags))


def write_handout(study: "StudyView", path: Path, form: str) -> Path:
    """Write the report as one of `FORMATS`, with its figures beside it, and return its path.

    Raises `UsageError` as `check_page`, and for a figure's file that is there without a report. It also does if a PDF
    is asked for and there is no Chromium. Raises `StorageError`.
    """
    browser = _chromium() if form == "pdf" else None
    check_page(path, FORMATS[form])
    found, prefix = handout(study), f"{path.stem}-"
    files = {path.parent / f"{prefix}{one.name}.{kind}": one for one in found.pictures for kind in ("png", "svg")}
    if not path.exists() and (strange := next(filter(Path.exists, files), None)):
        raise UsageError(f"{strange} is there without its report, and would be replaced; give the report another name")
    for file, one in files.items():
        save(one.figure, file)
    if form == "md":
        write_file(path, markdown(found, prefix).encode())
    elif browser is None:
        write_file(path, _html(found, prefix).encode())
    else:
        _print(browser, _html(found, prefix), path)
    return path.absolute()


def markdown(found: Handout, prefix: str) -> str:
    """Return the report in Markdown; its figures have names that begin with `prefix`."""
    blocks = [_MARK, f"# {found.title}", f"> {found.question}" if found.question else "", *answer_blocks(found, prefix)]
    for part in found.parts:
        blocks += [f"## {part.heading}", *map(markdown_block, part.blocks)]
    return "\n\n".join("\n".join(map(legible, one.split("\n"))) for one in blocks if one) + "\n"


def answer_blocks(found: Handout, prefix: str) -> list[str]:
    """Return the answer in Markdown: its sentences, its figures and its table."""
    first, *others = found.sentences
    shown = [f"![{one.title}]({prefix}{one.name}.png)\n\n*{one.caption}*" for one in found.pictures]
    return [f"**{first}**", " ".join(others), *shown[:1], markdown_block(found.table), *shown[1:]]


def markdown_block(block: Block) -> str:
    """Return a part of a report in Markdown; figures of tables are aligned right."""
    if isinstance(block, str):
        return block
    if not isinstance(block, Table):
        return "\n".join(f"- {label}: {text}" for label, text in block.rows)
    rule = tuple("---:" if name in block.right else "---" for name in block.columns)
    lines = (block.columns, rule, *block.rows)
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def _html(found: Handout, prefix: str) -> str:
    first = no_break(found.sentences[0])
    return render_template("handout.html", heading=first, found=found, prefix=prefix, light={}, dark={})


_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_LONGEST = 60
"""Seconds after which a browser has not printed."""


def _chromium() -> str:
    """Return the path of a Chromium. Raises `UsageError` if there is none."""
    named: Sequence[str] = (os.environ.get("ASSAY_CHROMIUM", ""), *_NAMES)
    found = next((path for name in named if name and (path := shutil.which(name))), None)
    if found is None:
        raise UsageError(
            "a PDF needs Chromium or Chrome, and none was found; install one, name it in the variable ASSAY_CHROMIUM, "
            "or write --format html and print it"
        )
    return found


def _print(browser: str, page: str, path: Path) -> None:
    """Print a page as PDF. Raises `UsageError` if the browser does not."""
    with TemporaryDirectory() as folder:
        # The page stands beside its figures for the time of printing, so that it finds them.
        source = path.with_suffix(".printed.html")
        source.write_text(page, encoding="utf-8")
        options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--no-pdf-header-footer")
        try:
            subprocess.run(
                [browser, *options, f"--print-to-pdf={path.absolute()}", source.absolute().as_uri()],
                check=True,
                capture_output=True,
                timeout=_LONGEST,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UsageError(
                f"{browser} did not print the report ({error}); write --format html and print it"
            ) from None
        finally:
            source.unlink(missing_ok=True)
