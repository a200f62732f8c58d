"""The smallest change of a loss that a comparison can tell, from the intervals of its rows.

The interval of a row is that of the differences over paired seeds (`typical`), as one of several comparisons. Its half
width is the smallest change that is called a difference. Rows deviate unequally, so the figures are those of a typical
row, the median. Rows that are equal to the last bit have no deviation, and do not count.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import median

from assay.analysis.effects import Effect
from assay.analysis.timed_processes import Resolution
from assay.analysis.typical import degrees, factor, left_out


def loss_resolution(effects: Sequence[Effect], comparisons: int) -> Resolution | None:
    """Return the smallest changes of a loss as fractions, with rows judged as some of several comparisons.

    None if no row has an interval, which takes three seeds.
    """
    from assay.analysis.intervals import POWER
    from assay.analysis.quantiles import student

    told, likely, deviations, freedoms = list[float](), list[float](), list[float](), list[int]()
    for one in effects:
        half = 0.0 if one.interval is None else (one.interval[1] - one.interval[0]) / 2
        if one.equal or not half:
            continue
        critical, freedom = factor(one.pairs, comparisons), degrees(one.pairs)
        error = half / critical
        told.append(half)
        likely.append((critical + float(student(POWER, freedom))) * error)
        deviations.append(error * sqrt(one.pairs - 2 * left_out(one.pairs)))
        freedoms.append(freedom)
    if not told:
        return None
    return Resolution(told=median(told), likely=median(likely), deviation=median(deviations), degrees=min(freedoms))
