"""Several ranks are one process: the same parameters, logits and numbers, and the same errors.

`ranks.py` is started once, as a program that forks three ranks over gloo; what each of them saw is judged here, against
a single process that knows nothing of the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ranks
import torch

import steep
from nets import images, net
from steep.core.method import Method
from steep.files import locked

pytestmark = pytest.mark.filterwarnings("ignore::steep.errors.SteepWarning")  # about the scale of made-up images

SCENARIOS = ("equal", "variants", "faults", "resumed", "late", "raises", "starves", "dies")
ABOUT = {torch.float32: 1e-5, torch.float64: 1e-12}
RUNS = [(method, size, torch.float32) for method in steep.METHODS for size in (2, 3)]
RUNS += [(method, 3, torch.float64) for method in ranks.DIGITS]


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict[str, list]:
    """What each rank saw in each scenario; None where it did not live to tell."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "ranks"
    with locked(folder, "lock"):  # test processes share one run
        if not (folder / "meet").exists():
            program = Path(__file__).with_name("ranks.py")
            paths = os.pathsep.join([str(program.parents[2] / "src"), str(program.parents[1])])
            environment = {**os.environ, "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "lo"}
            subprocess.run([sys.executable, program, folder, *SCENARIOS], env=environment, timeout=300, check=False)
    paths = {name: [folder / f"{name}-{rank}.pt" for rank in range(ranks.SIZE)] for name in SCENARIOS}
    return {
        name: [torch.load(p, weights_only=False) if p.exists() else None for p in each] for name, each in paths.items()
    }


@pytest.fixture(scope="module")
def alone() -> dict:
    return {}


@pytest.mark.parametrize(("method", "size", "dtype"), RUNS)
def test_ranks_equal_one_process(seen, alone, method, size, dtype):
    if (method, dtype) not in alone:
        alone[method, dtype] = ranks.one(method, dtype)
    parts = [seen["equal"][rank][method, size, dtype] for rank in range(size)]
    for index, expected in enumerate(alone[method, dtype]):
        near = {"rtol": 0, "atol": ABOUT[dtype]}
        got = [part[index] for part in parts]
        torch.testing.assert_close(torch.cat([g["logits"] for g in got]), expected["logits"], **near)
        for name, tensor in expected["state"].items():
            torch.testing.assert_close(got[0]["state"][name], tensor, **near, msg=lambda m, name=name: f"{name}: {m}")
        for name, value in expected["last"].items():
            about = pytest.approx(value, rel=0, abs=ABOUT[dtype]) if isinstance(value, float) else value
            assert got[0]["last"][name] == about, name
    assert len(parts[-1][ranks.EMPTY]["logits"]) == 0, "a rank had no image once"


@pytest.mark.parametrize("method", steep.METHODS)
def test_all_ranks_hold_the_same_bits(seen, method):
    for size, dtype in [(size, dtype) for name, size, dtype in RUNS if name == method]:
        first, *others = [seen["equal"][rank][method, size, dtype] for rank in range(size)]
        for other in others:
            for a, b in zip(first, other, strict=True):
                assert a["last"] == b["last"]
                assert all(torch.equal(t, b["state"][name]) for name, t in a["state"].items())


def test_what_is_compared_has_moved_and_was_filtered(alone, seen):
    """So that equal is not equal for want of anything happening."""
    for method in [name for name, each in steep.METHODS.items() if each.moves]:
        steps = seen["equal"][0][method, 3, torch.float32]
        moved = [n for n, t in steps[0]["state"].items() if not torch.equal(t, steps[3]["state"][n])]
        by_model = steep.METHODS[method].predict is Method.predict
        assert any("model" in name or not by_model for name in moved), method
        if method in ("pl", "eta", "eata", "sar"):
            used = [step["last"]["used"] for step in steps]
            assert any(0 < n < 24 for n in used), (method, used)


@pytest.mark.parametrize(
    "name",
    [
        "no running statistics",
        "group norm",
        "layer norm",
        "recompute",
        "two steps, episodic",
        "statistics of the stream",
        "recover",
    ],
)
def test_other_models_and_options(seen, name):
    got = [seen["variants"][rank][name] for rank in range(ranks.SIZE)]
    for index, expected in enumerate(got[0][False]):
        together = torch.cat([each[True][index] for each in got])
        torch.testing.assert_close(together, expected, rtol=0, atol=1e-12)
    for path, tensor in got[0][False, "state"].items():
        torch.testing.assert_close(got[0][True, "state"][path], tensor, rtol=0, atol=1e-12)
        assert all(torch.equal(each[True, "state"][path], got[0][True, "state"][path]) for each in got[1:])


def test_a_bad_image_is_refused_by_all_and_nothing_changes(seen):
    for rank, report in enumerate(seen["faults"]):
        kind, message = report["refused"]
        assert kind == "InputError"
        assert "got NaN, Inf or more in 1 of 8 images" in message
        assert ("refused on rank 1" in message) == (rank != 1)
    expected = ranks.adapter("tent")(ranks.batch(0, torch.float32))
    together = torch.cat([report["after a refusal"][0] for report in seen["faults"]])
    torch.testing.assert_close(together, expected, rtol=0, atol=1e-5)


def test_a_bad_image_does_not_poison_the_others(seen):
    x = ranks.batch(0, torch.float32)
    x[6, 0, 0, 0] = torch.nan  # the third of rank 1, whose part follows four images
    alone = ranks.adapter("tea", bad_images="nan")
    expected = alone(x)
    together = torch.cat([report["spoilt"][0] for report in seen["faults"]])
    torch.testing.assert_close(together, expected, rtol=0, atol=1e-5, equal_nan=True)
    assert {report["spoilt"][1] for report in seen["faults"]} == {alone.last.used} == {23}
    state = ranks.flat(alone.state_dict()["state"])
    for report in seen["faults"]:
        for path, tensor in state.items():
            torch.testing.assert_close(report["spoilt"][2][path], tensor, rtol=0, atol=1e-5)
        assert report["all spoilt"][0].isnan().all()
        assert report["all spoilt"][1] == "no good image in the batch"
        assert report["one rank spoilt"][1] == 16
        assert report["still fine"].isfinite().all()
    assert seen["faults"][1]["one rank spoilt"][0].isnan().all()
    assert seen["faults"][0]["one rank spoilt"][0].isfinite().all()


@pytest.mark.parametrize("method", ["tent", "dua"])
def test_a_harmful_step_of_one_rank_is_undone_on_all(seen, method):
    for report in seen["faults"]:
        skipped, undone, before, after = report["undone", method]
        assert "not finite" in skipped
        assert undone == 1
        assert all(torch.equal(t, after[name]) for name, t in before.items())
        assert report["guard raises"][0] == "GuardError"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("empty everywhere", "got none on any"),
        ("other shapes", "expected one shape on all ranks"),
        ("one has no images", "got a list"),
        ("other weights", "adapters are not the same"),
        ("other options", "adapters are not the same"),
        ("graph", "Leave compile and graph out"),
    ],
)
def test_what_does_not_fit_is_refused_on_every_rank(seen, name, says):
    for report in seen["faults"]:
        kind, message = report[name]
        assert (kind, says in message) == ("InputError", True), message


def test_an_empty_part_needs_no_shape(seen):
    assert [report["empty, of any shape"][0] for report in seen["faults"]] == [(4, 5), (8, 5), (0, 5)]
    assert {report["empty, of any shape"][1] for report in seen["faults"]} == {12}


@pytest.mark.parametrize("method", ["tea", "eta", "dua"])
def test_every_rank_resumes_from_its_file(seen, method):
    for rank, report in enumerate(seen["resumed"]):
        straight, again = report[method]
        assert all(torch.equal(a, b) for a, b in zip(straight, again, strict=True))
        logits, facts = report[method, "reset"]
        first = seen["equal"][rank][method, 3, torch.float32][0]
        assert torch.equal(logits, first["logits"])
        assert facts["last"] == first["last"]
        assert "adapters are not the same" in report["only one was reset"][1]


def test_a_rank_that_dies_ends_the_others_with_a_clear_error(seen):
    """Their own clock stands at ten minutes: it is the death that ends them."""
    assert seen["dies"][2] is None
    for report in seen["dies"][:2]:
        kind, message = report["error"]
        assert kind == "GroupError"
        assert "one of them has died" in message
        assert report["seconds"] < 60


@pytest.mark.parametrize(
    ("scenario", "error"),
    [("raises", ("OSError", "the disk is on fire")), ("starves", ("OutOfMemoryError", "full"))],
)
def test_a_rank_that_raises_ends_the_others_too(seen, scenario, error):
    assert seen[scenario][2]["error"] == error
    for report in seen[scenario]:
        assert report["seconds"] < 60
        assert report["then"][0] == "GroupError", "a rank that has left does not come back by itself"
    assert [report["error"][0] for report in seen[scenario][:2]] == ["GroupError"] * 2


def test_a_rank_that_never_comes_is_not_waited_for(seen):
    assert [report["error"][0] for report in seen["late"][:2]] == ["GroupError"] * 2


def test_off_by_default_and_refused_without_a_group():
    assert steep.adapt(net(), "tent")(images(4)).shape == (4, 5)
    with pytest.raises(steep.errors.InputError, match=r"expected torch.distributed to be initialised"):
        steep.adapt(net(), "tent", distributed=True)
