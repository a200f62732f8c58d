"""Views of studies beside their results: the library, plans, states, machines, and predicted studies."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from assay.analysis.factors.machines import Machines
from assay.report.kit.blocks import Block
from assay.report.kit.view import Shown
from assay.report.study import library, machines, predicted, standing
from assay.studies.execution.study_listing import StudyStanding
from assay.studies.library import LibraryEntry
from assay.studies.outlook import Outlook
from assay.studies.predicted import PredictedStudy

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class LibraryView(Shown[Sequence[LibraryEntry]]):
    """The library of published studies, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return a table of all studies."""
        return library.library_report(self.found)

    def values(self) -> list[Any]:
        """Return every study for programs."""
        return list(map(library.values, self.found))


class LibraryEntryView(Shown[LibraryEntry]):
    """One study of the library, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return what it asks, its scales, its rows and its faults."""
        return library.entry_report(self.found)

    def values(self) -> dict[str, Any]:
        """Return the study for programs."""
        return library.values(self.found)


class OutlookView(Shown[Outlook]):
    """A study before it runs, as a reader is shown it; with `cells`, each of its cells."""

    def __init__(self, found: Outlook, *, cells: bool = False) -> None:
        super().__init__(found)
        self._cells = cells

    def blocks(self) -> Iterable[Block]:
        """Return the whole, a table of the rows, and what cannot run."""
        return standing.outlook_report(self.found, cells=self._cells)

    def values(self) -> dict[str, Any]:
        """Return every row for programs."""
        return self.found.plain(cells=self._cells)


class StandingView(Shown[StudyStanding]):
    """The state of a study, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return how far it has come, and the cells that did not end as they should."""
        return standing.standing_report(self.found)

    def values(self) -> dict[str, Any]:
        """Return the state for programs."""
        return {**self.found._asdict(), "study": self.found.study._asdict()}


class MachinesView(Shown[Machines]):
    """One study on several machines, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return a column of changes for each machine."""
        return machines.machines_report(self.found)

    def values(self) -> dict[str, Any]:
        """Return every change for programs."""
        return machines.values(self.found)


class PredictedStudyView(Shown[PredictedStudy]):
    """A predicted study, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return the rows, and their changes and deviations."""
        return predicted.predicted_study_report(self.found)

    def values(self) -> dict[str, Any]:
        """Return every row for programs."""
        return predicted.predicted_study_values(self.found)

    def frame(self) -> "pandas.DataFrame":
        """Return a line for each row: its levels, and every figure that is compared."""
        import pandas

        from assay.analysis.predicted_rows import COMPARED

        known = [(one.label, dict(one.levels), one.found) for one in self.found.named if one.found is not None]
        return pandas.DataFrame(
            {"row": label, **levels, **{one.name: one.of(found) for one in COMPARED}} for label, levels, found in known
        )

    def figure(self, name: str = "") -> "Figure | None":
        """Return heat maps of changes and of deviations by two factors; None for a comparison."""
        from assay.report.kit.drawing import together, with_print_colours

        drawn = together(predicted.maps(self.found))
        return None if drawn is None else with_print_colours(drawn)
