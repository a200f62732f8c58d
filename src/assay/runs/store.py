"""An index of every run in one SQLite file, so that many can be listed and searched without opening each folder.

Only the parent of a run writes here; measured children write files. The file is in write-ahead-log mode, so that any
number of processes read while one writes, and a row that was committed survives a kill. It can be deleted at any time:
`recover.reconcile` fills it again from the run folders, which is also how rows of an older layout are brought over.
A home that cannot be written has its index in memory, so that its runs can still be listed.
SQLite on a network file system is unsafe; keep `ASSAY_HOME` on a local disk.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sql
from pydantic import ValidationError
from sqlalchemy.dialects.sqlite import insert

from assay.config.home import Home
from assay.errors import StorageError, UsageError
from assay.runs.record import RunResult

SCHEMA = 1
"""Raise it when a column or the meaning of one changes; older stores are then filled anew from the folders."""

_WAIT_MILLISECONDS = 20_000
_REFUSALS = ("disk is full", "disk i/o error", "readonly database", "unable to open")

_metadata = sql.MetaData()
_schema = sql.Table("schema", _metadata, sql.Column("version", sql.Integer, primary_key=True))
_runs = sql.Table(
    "runs",
    _metadata,
    sql.Column("run", sql.String, primary_key=True),
    sql.Column("status", sql.String, nullable=False),
    sql.Column("created", sql.String, nullable=False, index=True),
    sql.Column("identity", sql.String, nullable=False, index=True),
    sql.Column("stamp", sql.Integer, nullable=False),
    sql.Column("assay", sql.String),
    sql.Column("torch", sql.String),
    sql.Column("device", sql.String),
    sql.Column("processor", sql.String),
    sql.Column("threads", sql.Integer),
    sql.Column("corpus_digest", sql.String),
    sql.Column("config", sql.String, nullable=False),
    sql.Column("result", sql.String, nullable=False),
)


class Store:
    """The rows of one home. Raises `UsageError` for a file that is not ours to read, `StorageError` for a bad disk."""

    def __init__(self, home: Home) -> None:
        self.path = home.store
        if home.writable():
            self._engine = sql.create_engine(f"sqlite:///{self.path}", poolclass=sql.NullPool)
        else:
            self._engine = sql.create_engine("sqlite://", poolclass=sql.StaticPool)
        sql.event.listen(self._engine, "connect", _set_up)
        with self._speaking() as connection:
            self._lay_out(connection)

    def ingest(self, result: RunResult, stamp: int) -> None:
        """Write or replace a run's row; `stamp` tells which `result.json` it was made from."""
        row = _row(result, stamp)
        statement = insert(_runs).values(row).on_conflict_do_update(index_elements=["run"], set_=row)
        with self._speaking() as connection:
            connection.execute(statement)

    def get(self, run: str) -> RunResult | None:
        """The run with exactly this id; None where there is no readable row."""
        with self._speaking() as connection:
            text = connection.scalar(sql.select(_runs.c.result).where(_runs.c.run == run))
        return None if text is None else _readable(text)

    def results(self, identity: str | None = None) -> list[RunResult]:
        """Every run, or those of one configuration, newest first. A row that cannot be read is left out."""
        query = sql.select(_runs.c.result).order_by(_runs.c.created.desc(), _runs.c.run.desc())
        if identity is not None:
            query = query.where(_runs.c.identity == identity)
        with self._speaking() as connection:
            texts = connection.scalars(query).all()
        return [result for text in texts if (result := _readable(text)) is not None]

    def stamps(self) -> dict[str, tuple[str, int]]:
        """Status and stamp of every readable row, by run: what tells whether a folder has news."""
        query = sql.select(_runs.c.run, _runs.c.status, _runs.c.stamp, _runs.c.result)
        with self._speaking() as connection:
            rows = connection.execute(query).all()
        return {row.run: (row.status, row.stamp) for row in rows if _readable(row.result) is not None}

    def remove(self, run: str) -> None:
        """Forget a run."""
        with self._speaking() as connection:
            connection.execute(sql.delete(_runs).where(_runs.c.run == run))

    def _lay_out(self, connection: sql.Connection) -> None:
        there = sql.inspect(connection).get_table_names()
        version = connection.scalar(sql.select(_schema.c.version)) if "schema" in there else None
        if version == SCHEMA:
            return
        if version is not None and version > SCHEMA:
            raise UsageError(
                f"{self.path} was written by a newer assay (layout {version}, this one knows {SCHEMA}); "
                "update assay, or set ASSAY_HOME to another folder"
            )
        # Taken before the layout is looked at again: of several first comers one makes the tables.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        if version is not None:
            _runs.drop(connection, checkfirst=True)
            connection.execute(sql.delete(_schema))
        _metadata.create_all(connection)
        connection.execute(insert(_schema).values(version=SCHEMA).on_conflict_do_nothing())

    @contextmanager
    def _speaking(self) -> Iterator[sql.Connection]:
        """A transaction whose failures are told in one sentence."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except sql.exc.DatabaseError as error:
            reason = str(error.orig).strip()
            if any(refusal in reason.lower() for refusal in _REFUSALS):
                raise StorageError(f"{self.path} could not be written: {reason}") from error
            if "locked" in reason:
                raise StorageError(f"{self.path} is held by another process; try again when that has ended") from error
            raise UsageError(
                f"{self.path} cannot be read as a store ({reason}); delete it, it is made again from the run folders"
            ) from error


def _set_up(connection: Any, _record: Any) -> None:
    connection.execute(f"PRAGMA busy_timeout={_WAIT_MILLISECONDS}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _row(result: RunResult, stamp: int) -> dict[str, Any]:
    here = result.environment
    named = ("assay", "torch", "device", "processor", "threads", "corpus_digest")
    return {
        "run": result.run,
        "status": result.status.value,
        "created": result.created,
        "identity": result.identity,
        "stamp": stamp,
        **{name: getattr(here, name, None) for name in named},
        "config": json.dumps(result.config.model_dump(mode="json")),
        "result": result.model_dump_json(),
    }


def _readable(text: str) -> RunResult | None:
    try:
        return RunResult.model_validate_json(text)
    except ValidationError:
        return None
