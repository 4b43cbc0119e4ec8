"""`steep.compare`: what it says with labels is what a paired test says, and without them its intervals hold."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
import torch
from scipy import stats

import steep
from nets import images, net
from steep.comparing.compare import Comparison, Row, _accuracy, _measured
from steep.comparing.estimate import Signs, estimated_gain
from steep.errors import InputError, UnknownNameError

compare_module = importlib.import_module("steep.comparing.compare")  # the package has a function of that name


def loader(batches: int = 4, n: int = 20):
    draw = torch.Generator().manual_seed(5)
    return [(images(n, seed=k), torch.randint(5, (n,), generator=draw)) for k in range(batches)]


class Once:
    """A loader that can be read one time."""

    def __init__(self, batches) -> None:
        self.batches, self.read = batches, 0

    def __iter__(self):
        self.read += 1
        yield from self.batches


def test_measured_differences_are_those_of_a_paired_t_test() -> None:
    data = Once(loader())
    result = steep.compare(net(), data, ["bn", "tent"])
    assert data.read == 1
    assert (result.images, result.labelled) == (80, 80)
    rows = {row["method"]: row for row in result.rows()}
    truth = torch.cat([y for _, y in data.batches])
    right = {}
    for method in ("source", "bn", "tent"):  # again, each by itself
        adapter = steep.adapt(net(), method)
        right[method] = (torch.cat([adapter(x).argmax(1) for x, _ in data.batches]) == truth).double().numpy()
        assert rows[method]["accuracy"] == pytest.approx(100 * right[method].mean())
    for method in ("bn", "tent"):
        paired = stats.ttest_rel(right[method], right["source"])
        gain = 100 * (right[method].mean() - right["source"].mean())
        error = 100 * stats.sem(right[method] - right["source"])
        assert paired.statistic == pytest.approx(gain / error)
        assert rows[method]["gain"] == pytest.approx(gain)
        assert (rows[method]["low"], rows[method]["high"]) == pytest.approx((gain - 2 * error, gain + 2 * error))
        assert rows[method]["verdict"] == ("cannot tell" if abs(paired.statistic) <= 2 else rows[method]["verdict"])


def test_the_measured_interval_covers_the_truth() -> None:
    draw = np.random.default_rng(0)
    n, runs, covered = 300, 400, 0
    for _ in range(runs):  # 60 % both right, 12 % only the adapted one, 7 % only the source: a true gain of 5 points
        kind = draw.choice(4, n, p=[0.6, 0.12, 0.07, 0.21])
        after, before = (torch.from_numpy(np.isin(kind, some)) for some in ((0, 1), (0, 2)))
        low, high = _measured(_accuracy(after) - _accuracy(before))[1:]
        covered += low <= 5 <= high
    assert 0.92 < covered / runs < 0.98


def test_labels_beside_the_images() -> None:
    batches = loader()
    with_labels = steep.compare(net(), batches, "bn")
    y = torch.cat([y for _, y in batches])
    x = torch.cat([x for x, _ in batches])
    assert steep.compare(net(), x, "bn", labels=y, batch_size=20).rows() == with_labels.rows()
    some = y.clone()
    some[::2] = -1
    half = steep.compare(net(), x, ["bn"], labels=some.tolist(), batch_size=20)
    expected = (steep.adapt(net(), "source")(x).argmax(1)[1::2] == y[1::2]).double().mean()
    assert half.labelled == 40
    assert half.table[0].accuracy == pytest.approx(100 * expected)
    named = [{"pixel_values": x, "labels": y} for x, y in batches]
    assert steep.compare(net(), named, "bn").rows() == with_labels.rows()
    files = [(x, ["a.png"] * len(x)) for x, _ in batches]  # no labels
    assert steep.compare(net(), files, "bn").labelled == 0
    with pytest.raises(InputError, match="one for each of the 80 images"):
        steep.compare(net(), x, ["bn"], labels=y[:-1])


def test_signs_are_those_of_the_answers() -> None:
    draw = np.random.default_rng(1)
    logits, view = (draw.normal(size=(30, 7)) * 3 for _ in range(2))
    signs = Signs()
    for part in (slice(0, 20), slice(20, 30)):
        signs.add(*(torch.from_numpy(values[part]) for values in (logits, view)))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    entropy = stats.entropy
    within = (20 * entropy(p[:20].mean(0), base=7) + 10 * entropy(p[20:].mean(0), base=7)) / 30
    expected = {
        "doubt": entropy(p, axis=1, base=7).mean(),
        "steadiness": (logits.argmax(1) == view.argmax(1)).mean(),
        "variety": entropy(p.mean(0), base=7),
        "batch_variety": within,
    }
    assert signs.read() == pytest.approx(expected)


def answers(truth: torch.Tensor, right: float, sure: float, seed: int, stuck: int | None = None) -> torch.Tensor:
    """Made-up logits: so often right, wrong answers spread over the classes or stuck on one."""
    draw = torch.Generator().manual_seed(seed)
    wrong = torch.randint(10, truth.shape, generator=draw) if stuck is None else torch.full_like(truth, stuck)
    best = torch.where(torch.rand(truth.shape, generator=draw) < right, truth, wrong)
    return sure * torch.nn.functional.one_hot(best, 10).float()


@pytest.mark.parametrize(
    ("source", "adapted", "verdict"),
    [
        ((0.2, 4.0, 3), (0.9, 6.0, None), "helping"),  # the source is stuck, as under noise; its other view too
        ((0.9, 6.0, None), (0.15, 9.0, 3), "harming"),  # collapsed, and sure of it
        ((0.9, 6.0, None), (0.2, 2.0, None), "harming"),  # as on batches of one class: all classes, unsure, unsteady
        ((0.7, 5.0, None), (0.72, 5.0, None), "cannot tell"),
    ],
)
def test_plain_cases_are_told_without_labels(source, adapted, verdict) -> None:
    truth = torch.arange(400) % 10
    signs, classes = [], []
    for right, sure, stuck in (source, adapted):
        each = Signs()
        logits, view = (answers(truth, right, sure, seed, stuck) for seed in (len(signs), 7 + len(signs)))
        each.add(logits, view)
        signs.append(each.read())
        classes.append(logits.argmax(1))
    changed = float((classes[0] != classes[1]).double().mean())
    assert estimated_gain(*signs, changed).verdict == verdict


def test_an_estimate_is_within_what_can_change() -> None:
    signs = dict(zip(("doubt", "steadiness", "variety", "batch_variety"), (0.1, 0.9, 0.9, 0.8), strict=True))
    better = {**signs, "variety": 5.0}
    assert estimated_gain(signs, signs, 0.0)[:] == (0, 0, 0)
    assert estimated_gain(signs, better, 0.04)[::2] == pytest.approx((4, 4))
    assert estimated_gain(signs, {**signs, "doubt": math.nan}, 0.5).verdict == "cannot tell"


def test_without_labels_everything_is_an_estimate() -> None:
    x = images(60)
    result = steep.compare(net(), [x[:20], x[20:40], x[40:]], {"gentle": "bn", "quick": steep.METHODS["tent"](lr=0.5)})
    assert result.labelled == 0
    assert [row.method for row in result.table] == ["source", "gentle", "quick"]
    for row in result.table[1:]:
        assert -row.changed <= row.low <= row.gain <= row.high <= row.changed
    assert "estimated without labels" in str(result)
    assert str(result).endswith(result.verdict)
    assert result.rows() == steep.compare(net(), x, {"gentle": "bn", "quick": steep.METHODS["tent"](lr=0.5)},
                                          batch_size=20).rows()  # fmt: skip


def test_every_model_runs_in_the_precision_that_is_asked_for(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(compare_module, "adapt", lambda *args, **options: asked.append(options) or steep.adapt(*args))
    steep.compare(net(), images(20), ["bn", "tent"], precision="bfloat16")
    assert [options["precision"] for options in asked] == ["bfloat16"] * 3


def test_a_method_that_cannot_adapt_the_model_is_left_out() -> None:
    result = steep.compare(net("group"), images(40), ["bn", "tent"])
    assert [row.method for row in result.table] == ["source", "tent"]
    assert "BatchNorm" in result.refused["bn"]
    assert "bn is left out" in str(result)
    with pytest.raises(InputError, match="none of them can adapt"):
        steep.compare(net("group"), images(40), ["bn"])


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ({"methods": ["tent", "tent"]}, InputError, "A mapping gives them other names"),
        ({"methods": ["source"]}, InputError, "at least one"),
        ({"methods": ["tnet"]}, UnknownNameError, "tent"),
        ({"view": "mirrored"}, UnknownNameError, "mirror"),
        ({"loader": []}, InputError, "at least one batch"),
    ],
)
def test_wrong_calls_are_refused(wrong, error, match) -> None:
    with pytest.raises(error, match=match):
        steep.compare(**{"model": net(), "loader": images(4), "methods": ["bn"], **wrong})


def test_an_accuracy_that_is_a_guess_looks_like_one() -> None:
    table = (row("source", 0, 0, ""), row("bn", 6.24, 2, "helping"))
    guessed, counted = str(Comparison(9, 0, table)), str(Comparison(9, 9, table))
    assert "≈86 %" in guessed
    assert "86.2 %" not in guessed
    assert "86.2 %" in counted
    assert "≈" not in counted


def row(method: str, gain: float, half: float, verdict: str) -> Row:
    return Row(
        method=method, accuracy=80 + gain, gain=gain, low=gain - half, high=gain + half, changed=9, verdict=verdict
    )


def test_one_sentence_says_what_to_do() -> None:
    source = row("source", 0, 0, "")
    good, bad, open_ = row("bn", 6, 2, "helping"), row("tent", -9, 3, "harming"), row("shot", 1, 4, "cannot tell")
    assert Comparison(9, 0, (source, open_, good, bad)).verdict.startswith("Adapt with bn: +6.0 points (estimated")
    assert Comparison(9, 9, (source, good)).verdict == "Adapt with bn: +6.0 points (95 %: +4.0 to +8.0)."
    assert Comparison(9, 9, (source, bad)).verdict == "Do not adapt: tent would harm."
    assert (
        "whether shot would help cannot be told, and tent would harm" in Comparison(9, 0, (source, open_, bad)).verdict
    )
