"""Sections of a study's answer: the sentences, the choice of a row, effects of factors, and what was stated before.

A section has a title, its content as plain data, and figures. The terminal prints the content, the page shows it with
the figures, and `--json` has the values. A section appears only where there is content. So a section on interactions
says nothing of a study with one factor.

Its functions take the view of the study, and `study.of(ANALYSIS)` is what an analysis finds in its comparison: computed
once, for content, values and figures. To add a section, make one in a file of this folder, and list it in
`view.all_sections`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.report.kit.blocks import Block

if TYPE_CHECKING:
    from assay.report.kit.drawing import Panel
    from assay.report.study.view import StudyView


class Section(NamedTuple):
    """One part of the answer of a study."""

    name: str
    """Key of its values in JSON."""
    title: str
    content: "Callable[[StudyView], Iterable[Block]]"
    """Return the tables and sentences; nothing if the section does not apply to the study."""
    values: "Callable[[StudyView], Any]"
    """Return the same as plain values for JSON: numbers, texts, lists and dictionaries."""
    panels: "Callable[[StudyView], Sequence[Panel]] | None" = None
    """Return the small figures of the page; empty if there is nothing to draw."""
    caption: str = ""
    """Sentences below the figures."""
    printed: bool = True
    """True if a terminal prints the section in its place; the page and JSON always have it."""
    leads: bool = False
    """True if the page shows the section above the table."""


class Filled(NamedTuple):
    """A section that applies to a study, with its content."""

    section: Section
    blocks: tuple[Block, ...]
