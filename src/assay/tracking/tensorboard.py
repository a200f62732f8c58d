"""TensorBoard: an event file for each run, with scalars, the configuration as hyperparameters, and the summary.

Records are written one after the other by TensorBoard's own writer of records. Its writer of events works in a thread
that a full disk ends silently. TensorBoard keeps 32 bits of a scalar, so bytes beyond 16 MiB are rounded.
"""

import shlex
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from assay.tracking.base import Ending, Row, Sheet, Tracker, safe


class TensorBoard(Tracker):
    """Writes event files."""

    name: ClassVar[str] = "tensorboard"
    prefix: ClassVar[str] = "TENSORBOARD_"

    def load(self) -> None:
        """Import the library."""
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
        from tensorboard.plugins.hparams import metadata as hparams
        from tensorboard.plugins.text import metadata as texts
        from tensorboard.summary.writer.record_writer import RecordWriter
        from tensorboard.util.tensor_util import make_tensor_proto

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._hparams, self._texts = hparams, texts
        self._plugin: Any = plugin_data_pb2
        self._statuses: Any = api_pb2.Status
        self._tensor: Any = make_tensor_proto
        self._writer_of: Any = RecordWriter

    def begin(self, sheet: Sheet) -> None:
        """Begin a new event file, in a folder named by the run's title and id."""
        for earlier in self.folder.glob(f"*@{sheet.key}"):
            shutil.rmtree(earlier)
        folder = self.folder / f"{safe(sheet.title)}@{sheet.key}"
        folder.mkdir(parents=True)
        file = folder / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
        self._writer = self._writer_of(file.open("wb"))
        self._write(sheet.created, file_version="brain.Event:2")
        start = self._plugin.SessionStartInfo(group_name=sheet.key, start_time_secs=sheet.created)
        for name, value in sheet.config.items():
            kind = "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
            setattr(start.hparams[name], f"{kind}_value", value)
        self._session(sheet.created, self._hparams.SESSION_START_INFO_TAG, session_start_info=start)
        self._text(sheet.created, "configuration", sheet.config)

    def log(self, rows: Sequence[Row]) -> None:
        """Write an event for each row."""
        for row in rows:
            self._scalars(row.time, row.step, row.values)
        self._writer.flush()

    def end(self, ending: Ending) -> None:
        """Write the summary at the last step, and the status."""
        self._scalars(ending.time, ending.steps, {f"summary/{name}": one for name, one in ending.figures.items()})
        self._text(ending.time, "summary", ending.summary)
        status = "STATUS_SUCCESS" if ending.status.finished else "STATUS_FAILURE"
        end = self._plugin.SessionEndInfo(status=self._statuses.Value(status), end_time_secs=ending.time)
        self._session(ending.time, self._hparams.SESSION_END_INFO_TAG, session_end_info=end)
        self._writer.close()

    def look(self, runs: Sequence[str]) -> str:
        """Return the command of TensorBoard."""
        return f"tensorboard --logdir {shlex.quote(str(self.folder))}"

    def _scalars(self, seconds: float, step: int, values: Mapping[str, float]) -> None:
        self._write(
            seconds, *(self._summary.Value(tag=tag, simple_value=one) for tag, one in values.items()), step=step
        )

    def _text(self, seconds: float, tag: str, values: Mapping[str, object]) -> None:
        """Write values as a table in Markdown, which TensorBoard frees of scripts."""
        lines = [f"| {name} | {str(value).replace('|', '&#124;')} |" for name, value in values.items()]
        table = "\n".join(("| key | value |", "| --- | --- |", *lines))
        metadata, tensor = self._texts.create_summary_metadata(tag, ""), self._tensor([table.encode()])
        self._write(seconds, self._summary.Value(tag=tag, metadata=metadata, tensor=tensor))

    def _session(self, seconds: float, tag: str, **content: Any) -> None:
        """Write the beginning or the end of a run for the table of hyperparameters."""
        metadata = self._hparams.create_summary_metadata(self._plugin.HParamsPluginData(**content))
        self._write(seconds, self._summary.Value(tag=tag, metadata=metadata, tensor=self._hparams.NULL_TENSOR))

    def _write(self, seconds: float, *values: Any, **content: Any) -> None:
        if values:
            content["summary"] = self._summary(value=values)
        self._writer.write(self._event(wall_time=seconds, **content).SerializeToString())
