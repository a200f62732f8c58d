"""Models build their validators at their first use, or all at once."""

from assay.config.base import Frozen, Setting, build_models


class Late(Frozen):
    number: int


class Later(Setting):
    late: Late


class Unknown(Frozen):
    never: "NoSuchType"  # type: ignore[name-defined]  # noqa: F821


def test_all_imported_models_are_built_at_once_and_one_that_cannot_be_harms_none() -> None:
    assert not Late.__pydantic_complete__
    assert not Later.__pydantic_complete__
    build_models()
    assert Late.__pydantic_complete__
    assert Later.__pydantic_complete__
    assert not Unknown.__pydantic_complete__
    assert Later.model_validate({"late": {"number": 1}}).late.number == 1
