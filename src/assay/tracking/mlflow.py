"""MLflow: runs of one experiment in an SQLite file, with parameters, metrics by step, and tags.

The summary's numbers are metrics ``summary/NAME``, and its texts are tags. A run that is copied anew is deleted first,
which MLflow shows as deleted until `mlflow gc`.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, TypeVar

from assay.records.status import Status
from assay.tracking.base import PROJECT, Ending, Row, Sheet, Tracker

_Item = TypeVar("_Item")

_METRICS, _OTHERS = 1000, 100
"""Most metrics, and most parameters or tags, that MLflow takes at once."""


class MLflow(Tracker):
    """Writes to an SQLite file of MLflow."""

    name: ClassVar[str] = "mlflow"
    prefix: ClassVar[str] = "MLFLOW_"

    @property
    def address(self) -> str:
        """Address of the file, as MLflow writes it."""
        return f"sqlite:///{self.folder / 'mlflow.db'}"

    def surroundings(self) -> Mapping[str, str]:
        """Return variables that turn off reports to MLflow's makers."""
        return {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_TRACKING_URI": self.address}

    def load(self) -> None:
        """Import the library."""
        from mlflow import MlflowClient, entities

        self._client_of: Any = MlflowClient
        self._entities: Any = entities
        self._client: Any = None

    def begin(self, sheet: Sheet) -> None:
        """Create a run, and delete an earlier copy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._client is None:
            self._client = self._client_of(tracking_uri=self.address)
        experiment = self._experiment()
        for earlier in self._client.search_runs([experiment], f"tags.`assay.run` = '{sheet.key}'"):
            self._client.delete_run(earlier.info.run_id)
        tags = {"assay.run": sheet.key} | ({"assay.study": sheet.group} if sheet.group else {})
        made = self._client.create_run(experiment, int(1e3 * sheet.created), tags, run_name=sheet.title)
        self._run = made.info.run_id
        parameters = (self._entities.Param(name, str(value)) for name, value in sheet.config.items())
        for some in _in_pieces(parameters, _OTHERS):
            self._client.log_batch(self._run, params=some)

    def log(self, rows: Sequence[Row]) -> None:
        """Add the values of the rows as metrics."""
        self._metrics((row.time, row.step, row.values) for row in rows)

    def end(self, ending: Ending) -> None:
        """Add the summary, and end the run."""
        summary = {f"summary/{name}": value for name, value in ending.figures.items()}
        self._metrics([(ending.time, ending.steps, summary)])
        tags = (self._entities.RunTag(f"assay.{name}", value) for name, value in ending.texts.items())
        for some in _in_pieces(tags, _OTHERS):
            self._client.log_batch(self._run, tags=some)
        self._client.set_terminated(self._run, _status(ending.status), int(1e3 * ending.time))

    def look(self, runs: Sequence[str]) -> str:
        """Return the command of MLflow's server."""
        return f"mlflow ui --backend-store-uri {shlex.quote(self.address)}"

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(PROJECT)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(PROJECT, (self.folder / "artifacts").as_uri()))

    def _metrics(self, rows: Iterable[tuple[float, int, Mapping[str, float]]]) -> None:
        metrics = (
            self._entities.Metric(name, value, int(1e3 * time), step)
            for time, step, values in rows
            for name, value in values.items()
        )
        for some in _in_pieces(metrics, _METRICS):
            self._client.log_batch(self._run, metrics=some)


def _status(status: Status) -> str:
    """Return MLflow's word for a status."""
    if status is Status.RUNNING:
        return "RUNNING"
    if status.finished:
        return "FINISHED"
    return "KILLED" if status in (Status.KILLED, Status.INTERRUPTED) else "FAILED"


def _in_pieces(items: Iterable[_Item], most: int) -> Iterator[list[_Item]]:
    """Yield the items in lists of at most `most`."""
    rest = iter(items)
    while some := list(islice(rest, most)):
        yield some
