"""Every law: its slopes against differences, its recovery from its own points, and what it needs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from assay.errors import UsageError
from assay.scaling.fitted import FittedLaw
from assay.scaling.fitting import bootstrap, fit
from assay.scaling.laws import form_named, forms
from assay.scaling.laws.base import Constant
from assay.scaling.points import planned_points
from support.laws import design, drawn, known_law

NAMES = tuple(forms())


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_those_of_differences(name: str) -> None:
    law, points, step = known_law(name), design(40, 0), 1e-5
    for shift in (0.0, 0.01, -0.02):
        values = law.values + shift
        moves = step * np.eye(len(values))
        upper, lower = (law.form.log_losses(values + sign * moves, points)[0] for sign in (1, -1))
        slopes = law.form.log_losses(values[None], points)[1][0]
        assert pytest.approx((upper - lower) / (2 * step), rel=1e-4, abs=1e-6) == slopes.T


@pytest.mark.parametrize("name", NAMES)
def test_a_law_without_noise_is_recovered(name: str) -> None:
    law = known_law(name)
    found = fit(drawn(law, 60, 1, 0.0), law.form)
    far = design(50, 2)
    assert found.law.losses(far) == pytest.approx(law.losses(far), rel=1e-4)
    assert found.law.printed == pytest.approx(law.printed, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_printed_constants_and_values_are_the_same_law(name: str) -> None:
    law = known_law(name)
    assert law.form.of(*law.printed.values()).numbers == pytest.approx(law.numbers)
    assert len(law.form.starts(drawn(law, 30, 3, 0.01))[0]) == len(law.form.constants)
    assert law.form.source
    assert law.form.counts


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_column_is_a_sentence(name: str) -> None:
    law = known_law(name)
    with pytest.raises(UsageError, match="the law needs a column"):
        law.losses(planned_points(loss=1.0))


@pytest.mark.parametrize("name", [name for name in NAMES if known_law(name).form.optimum(known_law(name).values, 1e21)])
def test_an_optimum_has_the_lowest_loss_at_its_compute(name: str) -> None:
    law = known_law(name)
    for flops in (1e18, 1e21, 1e24):
        size, tokens = law.optimum(flops)
        assert 6 * size * tokens == pytest.approx(flops)
        slow = minimize_scalar(
            lambda log, flops=flops: float(law.loss(np.exp(log), flops / 6 / np.exp(log))),
            bracket=(np.log(size) - 1, np.log(size) + 1),
        )
        assert np.exp(slow.x) == pytest.approx(size, rel=1e-3)


def test_a_law_without_an_optimum_says_so() -> None:
    with pytest.raises(UsageError, match="kaplan-size has no best size"):
        known_law("kaplan-size").optimum(1e21)


def test_an_unknown_source_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="of 'me'; there are those of Besiroglu 2024, Hoffmann"):
        form_named("hoffmann").known("me")
    with pytest.raises(UsageError, match="saturating has no published constants; fit it to points"):
        form_named("saturating").known("")


def test_fits_of_one_paper_are_not_mixed() -> None:
    """Kaplan et al. 2020: the joint constants differ from those of L(N) and L(D), table 2 and appendix A."""
    alone = {**known_law("kaplan-size").printed, **known_law("kaplan-data").printed}
    joint, steps = known_law("kaplan-joint").printed, known_law("kaplan-steps").printed
    assert alone == pytest.approx({"N_c": 8.8e13, "α_N": 0.076, "D_c": 5.4e13, "α_D": 0.095})
    assert joint == pytest.approx({"N_c": 6.4e13, "D_c": 1.8e13, "α_N": 0.076, "α_D": 0.103})
    assert steps == pytest.approx({"N_c": 6.5e13, "S_c": 2.1e3, "α_N": 0.077, "α_S": 0.76})


def test_published_power_laws_have_their_published_losses() -> None:
    """One PF-day costs (3.1e8)^0.05 = 2.66 nats by L(C_min), and (1.6e7)^0.057 = 2.57 by L(C)."""
    day = 1e15 * 86400
    assert known_law("kaplan-min-compute").losses(planned_points(min_flops=day))[0] == pytest.approx(3.1e8**0.050)
    assert known_law("kaplan-compute").losses(planned_points(counted_flops=day))[0] == pytest.approx(1.6e7**0.057)
    assert known_law("kaplan-size").loss(1.5e9, np.nan) == pytest.approx((8.8e13 / 1.5e9) ** 0.076)


def test_the_joint_law_ends_in_a_power_of_each() -> None:
    law = known_law("kaplan-joint")
    assert law.loss(1e9, 1e40) == pytest.approx((6.4e13 / 1e9) ** 0.076)
    assert law.loss(1e40, 1e9) == pytest.approx((1.8e13 / 1e9) ** 0.103)


def test_the_law_of_droppo_has_two_laws_as_cases() -> None:
    form, points = form_named("droppo"), design(30, 4)
    hoffmann, joint = known_law("hoffmann"), known_law("kaplan-joint")
    assert form.of(*hoffmann.printed.values(), 1.0).losses(points) == pytest.approx(hoffmann.losses(points))
    n, d, by_size, by_data = joint.printed.values()
    same = form.of(1e-300, n**by_size, d**by_data, by_size, by_data, by_data)
    assert same.losses(points) == pytest.approx(joint.losses(points))


def test_a_constant_stays_within_its_limits() -> None:
    constant = Constant("γ", least=0.2, most=1.0)
    assert [constant.printed(value) for value in (-1e9, 0.0, 1e9)] == pytest.approx([0.2, 0.6, 1.0])
    assert constant.printed(constant.value(0.37)) == pytest.approx(0.37)
    assert [constant.reaches_limit(ends) for ends in ((0.21, 0.5), (0.3, 0.9), (0.5, 0.96))] == [True, False, True]
    assert not Constant("A").reaches_limit((1e-9, 1e9))


def test_constants_are_known_only_if_the_one_that_decides_them_is() -> None:
    law = known_law("droppo")
    found = fit(drawn(law, 40, 1, 0.01), law.form)
    fitted = FittedLaw(found, tuple(bootstrap(found, 50)), 0)
    assert fitted.unidentified == tuple(law.printed)
    low, high = fitted.intervals["E"]
    assert high < 2 * low  # alone its interval would do


def test_text_that_is_not_repeated_is_the_parametric_law() -> None:
    law, tokens = known_law("repeated"), 1e11
    plain = form_named("hoffmann").of(*list(law.printed.values())[:5])
    small = planned_points(parameters=1e8, tokens=tokens, unique_tokens=tokens)
    assert law.losses(small) == pytest.approx(plain.losses(small))


def test_repeated_text_is_worth_less_and_never_more_than_its_limit() -> None:
    """Muennighoff et al. 2023: four epochs are nearly as good as new text, and 40 add nothing."""
    law, unique = known_law("repeated"), 1e11

    def loss(epochs: float) -> float:
        return float(law.losses(planned_points(parameters=1e8, tokens=epochs * unique, unique_tokens=unique))[0])

    new = [
        float(law.losses(planned_points(parameters=1e8, tokens=n * unique, unique_tokens=n * unique))[0])
        for n in (4, 16)
    ]
    assert loss(4) == pytest.approx(new[0], rel=0.002)
    assert loss(4) > new[0]
    assert loss(16) - new[1] > 2 * (loss(4) - new[0])
    most = float(
        law.losses(planned_points(parameters=1e8, tokens=16.387756 * unique, unique_tokens=16.387756 * unique))[0]
    )
    assert loss(1e4) == pytest.approx(most, rel=1e-4)


def test_counted_flops_stand_before_six_n_d() -> None:
    law, points = known_law("kaplan-compute"), design(8, 0)
    more = replace(points, counted_flops=1.3 * points.flops)
    assert law.losses(more) == pytest.approx(law.losses(points) * 1.3**-0.057)
