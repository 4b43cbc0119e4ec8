"""The paper's claims on the rows of one table."""

from __future__ import annotations

from made_rows import METHODS, grid, row, ten
from steep.report import claims
from steep.report.claims import FAILS, HOLDS, NOISE
from steep.report.paper import methods
from steep.report.tables import build


def bars(low: tuple[int, float, float], high: tuple[int, float, float]) -> dict[str, list[float]]:
    return {name: [low[i], high[i]] for i, name in enumerate(("counts", "confidence", "accuracy"))}


def test_an_unfinished_line_is_compared_with_no_finished_one() -> None:
    bad, good = bars((5, 0.9, 0.1), (5, 0.9, 0.1)), bars((5, 0.9, 0.9), (5, 0.9, 0.9))
    energies = {"energy_before": -5.0, "energy_after": -6.0}
    rows = grid({"source": 0.5, "tent": 0.6, "shot": 0.6}, calibration=bad, **energies)
    rows += grid({"tea": 0.9}, calibration=good, **energies)
    calibrated, lowers = "TEA is better calibrated than tent (ECE)", "TEA lowers the mean energy"
    verdicts = {claim.text: claim.verdict for claim in claims.of(build(rows)[0])}
    assert verdicts[calibrated] == HOLDS
    assert any(text.startswith(lowers) for text in verdicts)
    without = {claim.text for claim in claims.of(build(rows[:-1])[0])}  # one corruption of tea is not there
    assert not [text for text in without if text == calibrated or text.startswith(lowers)]


def test_one_table_says_within_noise_too() -> None:
    table = build(grid(ten(0.701)))[0]
    checked = {claim.text: claim for claim in claims.of(table)}
    assert checked["TEA has the highest mean accuracy"].verdict == NOISE
    every = checked["TEA has the highest accuracy on every shift"]
    assert (every.verdict, every.here[:11]) == (NOISE, "on 15 of 15")


def test_only_the_methods_of_the_paper_are_rivals_in_its_claims() -> None:
    assert methods() == set(METHODS)
    table = build(grid(ten(0.75)) + grid({"tea-fast": 0.9}) + grid({"mine": 0.95}))[0]
    first = next(claim for claim in claims.of(table) if claim.text == "TEA has the highest mean accuracy")
    assert first.verdict == HOLDS


def test_energy_that_stays_where_it_is_has_not_fallen() -> None:
    rows = [row("source", "fog", 0.5, energy_before=-5.0, energy_after=-5.0)]
    rows += [row("tea", "fog", 0.8, energy_before=-5.0, energy_after=-5.0)]
    (claim,) = [claim for claim in claims.of(build(rows)[0]) if "energy" in claim.text]
    assert (claim.verdict, claim.here) == (FAILS, "on 0 of 1")
