"""JSON schemas of the files that assay writes and reads, and of what its verbs print with `--json`.

A schema has a version. It is raised with each change of the schema but those of its texts, and records of earlier
versions still satisfy it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from assay.errors import UsageError, among, short_text
from assay.records.json_schema import json_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DIGEST = {"type": "string", "description": "Digest of the content, which a file ends with."}


class Schema(NamedTuple):
    """A JSON schema, made when it is asked for."""

    name: str
    version: int
    title: str
    make: Callable[[], dict[str, Any]]

    def plain(self) -> dict[str, Any]:
        """Return the schema with its dialect, its id and its title. Raises `UsageError` for a wrong extension."""
        head = {"$schema": DIALECT, "$id": f"urn:assay:schema:{self.name}:{self.version}", "title": self.title}
        return {**self.make(), **head}


def _run() -> dict[str, Any]:
    from assay.records.run import RunResult

    return _in_file(RunResult)


def _run_start() -> dict[str, Any]:
    from assay.store.run_folder import RunSpec

    return _in_file(RunSpec)


def _comparison() -> dict[str, Any]:
    from assay.records.study import ComparisonRecord

    return _in_file(ComparisonRecord)


def _study_plan() -> dict[str, Any]:
    from assay.studies.folder import StudyPlan

    return _in_file(StudyPlan)


def _study() -> dict[str, Any]:
    from assay.studies.schema import study_schema

    return study_schema()


def _answer() -> dict[str, Any]:
    from assay.report.schema import AnswerJson

    return json_schema(AnswerJson)


def _estimate() -> dict[str, Any]:
    from assay.report.schema import EstimateJson, EstimateRowsJson

    return json_schema(EstimateJson | EstimateRowsJson)


def _recommend() -> dict[str, Any]:
    from assay.report.schema import AdviceJson

    return json_schema(AdviceJson)


def _capacity() -> dict[str, Any]:
    from assay.report.schema import CapacityJson

    return json_schema(CapacityJson)


def _plan() -> dict[str, Any]:
    from assay.report.planned_schema import PlanJson

    return json_schema(PlanJson)


def _inference() -> dict[str, Any]:
    from assay.report.planned_schema import InferenceJson

    return json_schema(InferenceJson)


def _cost() -> dict[str, Any]:
    from assay.report.planned_schema import CostJson

    return json_schema(CostJson)


def _measure() -> dict[str, Any]:
    from assay.report.schema import MeasureJson

    return json_schema(MeasureJson)


def _machine() -> dict[str, Any]:
    from assay.report.schema import MachineJson

    return json_schema(MachineJson)


def _anatomy() -> dict[str, Any]:
    from assay.report.schema import AnatomyJson

    return json_schema(AnatomyJson)


def _mesh() -> dict[str, Any]:
    from assay.report.planned_schema import MeshJson

    return json_schema(MeshJson)


def _doctor() -> dict[str, Any]:
    from assay.hardware.examination import Finding

    return json_schema(list[Finding])


def _gradients() -> dict[str, Any]:
    from assay.records.gradients import GradientProbe

    return json_schema(GradientProbe)


def _in_file(model: type[Any]) -> dict[str, Any]:
    """Return the schema of a record in a file, which has a digest as its last key."""
    found = json_schema(model)
    return {**found, "properties": {**found["properties"], "digest": _DIGEST}}


SCHEMAS = {
    one.name: one
    for one in (
        Schema("run", 1, "result.json of a run, and --json of train and runs show", _run),
        Schema("run-start", 1, "run.json: the configuration of a run, before it begins", _run_start),
        Schema("comparison", 3, "comparison.json: the record of a study, with every cell", _comparison),
        Schema("study-plan", 3, "study.json: the plan of a study, before it begins", _study_plan),
        Schema("answer", 1, "answer.json, and --json of compare and study show; not of the kind isoflop", _answer),
        Schema("estimate", 2, "--json of estimate, without --trace and --absent", _estimate),
        Schema("recommend", 1, "--json of recommend, for one device", _recommend),
        Schema("capacity", 1, "--json of capacity", _capacity),
        Schema("plan", 2, "--json of plan", _plan),
        Schema("inference", 1, "--json of inference", _inference),
        Schema("cost", 1, "--json of cost", _cost),
        Schema("measure", 1, "--json of measure, without --device", _measure),
        Schema("machine", 1, "--json of machine", _machine),
        Schema("anatomy", 1, "--json of anatomy", _anatomy),
        Schema("mesh", 1, "--json of mesh", _mesh),
        Schema("doctor", 1, "--json of doctor", _doctor),
        Schema("gradients", 1, "--json of gradients", _gradients),
        Schema("study", 2, "the YAML file of a study, of every kind", _study),
    )
}
"""Schemas by name."""


def schema(name: str) -> Schema:
    """Return a schema by its name. Raises `UsageError` for an unknown one."""
    if name not in SCHEMAS:
        raise UsageError(f"there is no schema {short_text(name)}{among(name, list(SCHEMAS))}")
    return SCHEMAS[name]
