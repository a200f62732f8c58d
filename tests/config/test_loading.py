"""Configurations: presets load, overrides land, and a mistake is one sentence that names the key and what was meant."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.config import ModelConfig, Run, Spec, identity, load, presets, validate
from assay.config.loading import stack
from assay.errors import UsageError
from assay.optimizations import resolve_run


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_a_run(name: str) -> None:
    run = load(name)
    assert validate(run.model_dump(mode="json")) == run


OVERRIDES = [
    ["training.steps=34"],
    ["data.path=a b", "model.n_layer=2", "training.learning_rate=1e-3"],
    ["training={steps: 5}", "training.batch_size=2"],
    ["model.n_expert=null", "optimizations=[sdpa_attention,bf16_mixed]"],
    ["optimizations=[]", "data={path: x}"],
    ["training.steps=${seed}", "seed=7"],
]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.n_layers=3", "unknown key 'model.n_layers'; did you mean 'model.n_layer'?"),
        ("n_layer=3", "did you mean 'model.n_layer'?"),
        ("bogus=1", "the keys here are model, data"),
        ("model.n_layer=x", "model.n_layer='x' is not possible"),
        ("model.n_layer=true", "valid integer"),
        ("model.n_layer=0", "greater than or equal to 1"),
        ("model.n_head=5", "n_embd=64 is not divisible by n_head=5"),
        ("model.n_kv_head=3", "not divisible by n_kv_head=3"),
        ("model=", "model= has no value; leave it out, or write model=null for none"),
        ("model=null", "should be a mapping of keys"),
        ("data.validation_fraction=0", "greater than 0"),
        ("data.corpus=files", "needs data.path"),
        ("training.min_learning_rate=1", "is above learning_rate"),
        ("seed=99999999999999999999", "less than"),
        ("threads=100000", "less than or equal to 1024"),
        (f"training.steps={10**400}", "should be at most 2^63"),
        ("optimizations=[bf16_mixed,bf16_mixed]", "listed twice"),
        ("optimizations=[a:b]", "not of the form field=value"),
        ("training=[1", "the overrides training=[1 cannot be read"),
        ("training.steps", "write key=value"),
        ("seed=???", "seed='???' is not possible"),
        ("optimizations[0]=muon", "optimizations={'0': 'muon'} is not possible"),
    ],
)
def test_a_mistake_is_one_sentence(override: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        load("demo", [override])
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    for text, says in (
        ("- 1\n", "must be a mapping"),
        ("a: [1\n", "line 2"),
        ("a: 1\na: 2\n", "has the key 'a' twice"),
    ):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        with pytest.raises(UsageError, match=says):
            load(path)
    with pytest.raises(UsageError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(UsageError, match="did you mean 'demo'"):
        load("dmeo")
    with pytest.raises(UsageError, match=r"^the name of a configuration is empty; name a YAML file or a preset"):
        load("")


def test_a_presets_shape_gives_way_to_the_weights_that_a_run_starts_from() -> None:
    model = load("gpt2-124m", ["model.init_from=somewhere", "model.n_head=2"]).model
    assert model.model_fields_set == {"init_from", "n_head"}
    assert "n_layer" in load("gpt2-124m").model.model_fields_set


@given(names=st.permutations(["seed", "model", "training", "data"]))
def test_key_order_and_spelled_out_defaults_do_not_change_the_identity(names: list[str]) -> None:
    spelled = Run().model_dump(mode="json")
    assert identity(resolve_run(validate({name: spelled[name] for name in names}))) == identity(resolve_run(Run()))


def test_a_run_that_is_not_nudged_has_the_identity_that_it_had_before_runs_could_be() -> None:
    assert identity(resolve_run(Run(training={"eval_batches": None}))) == "7e859c602289"  # type: ignore[arg-type]
    assert identity(resolve_run(Run(nudge=1))) != identity(resolve_run(Run()))


def test_a_run_that_compares_gradients_is_another_run() -> None:
    plain = identity(resolve_run(validate({})))
    assert identity(resolve_run(validate({"training": {"gradient_probe": 0}}))) == plain
    assert identity(resolve_run(validate({"training": {"gradient_probe": 2}}))) != plain
    assert identity(resolve_run(validate({"training": {"decay_fraction": 0.2, "keep_steps": []}}))) == plain
    assert identity(resolve_run(validate({"training": {"decay_fraction": 0.3}}))) != plain
    assert identity(resolve_run(validate({"training": {"keep_steps": [3]}}))) != plain


def test_one_micro_batch_has_none_to_be_compared_with() -> None:
    with pytest.raises(UsageError, match="gradient_probe=1 has no two micro-batches to compare"):
        validate({"training": {"gradient_probe": 1}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_head_dim", 32),
        ("qkv_bias", False),
        ("norm_eps", 1e-6),
        ("rotary_factor", 8.0),
        ("rotary_context", 64),
    ],
)
def test_a_newer_field_of_the_model_counts_only_where_it_is_set(name: str, value: object) -> None:
    plain = {"n_layer": 1, "position": "rotary"}
    default = ModelConfig.model_fields[name].default
    was = identity(resolve_run(validate({"model": plain})))
    assert identity(resolve_run(validate({"model": plain | {name: default}}))) == was
    assert identity(resolve_run(validate({"model": plain | {name: value}}))) != was


@given(text=st.text(max_size=30))
def test_any_text_is_a_spec_or_a_usage_error(text: str) -> None:
    try:
        spec = Spec.parse(text)
    except ValueError:
        return
    assert spec.name


def test_a_spec_reads_back_what_it_prints() -> None:
    spec = Spec.parse("name:count=4,rate=0.5,label=x,on=true")
    assert spec.fields == {"count": 4, "rate": 0.5, "label": "x", "on": True}
    assert Spec.parse(str(spec)) == spec


@given(rate=st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_however_it_is_written(rate: float) -> None:
    specs = (Spec(name="lion", fields={"rate": rate}), Spec(name="sgd"))
    assert Spec.parse_stack("+".join(map(str, specs))) == specs
    assert Spec.parse(f"lion:rate={rate:.3e}").fields["rate"] == float(f"{rate:.3e}")


@pytest.mark.parametrize("key", ["training.learning_rate", "training.weight_decay", "training.gradient_clip"])
def test_every_number_of_a_run_is_finite(key: str) -> None:
    for number in ("1e999", ".inf", ".nan"):
        with pytest.raises(UsageError, match=f"{key}=.* is not possible: it should be a finite number"):
            load("demo", [f"{key}={number}"])


@pytest.mark.parametrize("text", ["sgd+", "+", "+sgd", "sgd++lion"])
def test_a_plus_sign_joins_two(text: str) -> None:
    with pytest.raises(UsageError, match="lacks an optimization on one side of a plus sign"):
        stack([text])


@pytest.mark.parametrize("name", presets())
def test_a_preset_read_without_omegaconf_has_the_same_values(name: str) -> None:
    """An override goes through OmegaConf; one that repeats a value of the preset changes nothing."""
    run = load(name)
    assert load(name, [f"seed={run.seed}"]).model_dump() == run.model_dump()
    assert load(run).model_dump() == run.model_dump()


@pytest.mark.parametrize("overrides", OVERRIDES, ids=" ".join)
def test_overrides_are_merged_as_omegaconf_does(overrides: list[str]) -> None:
    run = load("demo")
    merged = OmegaConf.unsafe_merge(OmegaConf.create(run.model_dump(mode="json")), OmegaConf.from_dotlist(overrides))
    assert load(run, overrides) == validate(OmegaConf.to_container(merged, resolve=True))


def test_overrides_do_not_change_a_preset_for_later_calls() -> None:
    before = load("demo")
    assert load("demo", ["model.n_layer=7", "model.init_from=gpt2"]).model.n_layer != before.model.n_layer
    assert load("demo") == before


def test_a_model_of_the_users_own_has_no_probe_of_its_gradients() -> None:
    with pytest.raises(
        UsageError, match=r"gradient_probe compares gradients of assay's model; leave it out for your own"
    ):
        validate({"model": {"own": "mine:build"}, "training": {"gradient_probe": 4}})


@pytest.mark.parametrize(
    ("overrides", "size"),
    [
        ((), 65),
        (("data.max_bytes=1000",), None),
        (("data.path=text.txt",), None),
        (("data.tokenizer=bpe",), 1024),
        (("data.tokenizer=byte",), 256),
        (("model.vocab_size=70",), 70),
    ],
)
def test_a_vocabulary_is_known_without_text_if_the_text_is_published_whole(
    overrides: tuple[str, ...], size: int | None
) -> None:
    assert load("shakespeare-char", list(overrides)).with_vocabulary().model.vocab_size == size


@pytest.mark.parametrize("path", ["*.txt", "[ab].txt", "{a,b}.txt", "./*.txt", "a b.txt"])
def test_a_glob_is_a_path_as_it_is(path: str) -> None:
    found = load("demo", [f"data.path={path}"]).data.path
    assert found is not None
    assert Path(found).name == Path(path).name
    assert load("demo", [f"data.path='{path}'"]).data.path == found
