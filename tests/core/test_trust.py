"""Whom a look trusts, and whether it finds too few classes in the batch, when the answers are as given here."""

from __future__ import annotations

import pytest
import torch
from test_guard import Prism, rainbow

import steep
from contract import identical
from steep.core.run import trust


def sure_of(classes: list[int], certainty: float = 6.0) -> torch.Tensor:
    """Logits of one image for each class that is named."""
    return certainty * torch.nn.functional.one_hot(torch.tensor(classes), 4).double()


EVEN, ONE, WRONG = [0, 1, 2, 3] * 5, [0] * 20, [3] * 20
OPINIONS = {  # of the source model by the statistics of the batch, of the stream, and its own
    "all alike: the method": (sure_of(EVEN), sure_of(EVEN), sure_of(EVEN), "batch", False),
    "its own are surer and agree": (sure_of(EVEN, 3), sure_of(EVEN, 3), sure_of(EVEN), "both", False),
    "its own are as sure, agree on 70 % and see all classes": (
        sure_of(EVEN, 3),
        sure_of(EVEN, 3),
        sure_of([*EVEN[:14], 3, 2, 1, 0, 1, 0], 3.1),
        "both",
        False,
    ),
    "its own are as sure, agree on 70 % and see fewer classes": (
        sure_of(EVEN, 3),
        sure_of(EVEN, 3),
        sure_of([*EVEN[:14], 0, 0, 1, 0, 0, 0], 3.1),
        "batch",
        False,
    ),
    "its own are as sure, and agree on 65 %": (  # 53 % beyond chance
        sure_of(EVEN, 3),
        sure_of(EVEN, 3),
        sure_of([*EVEN[:13], 2, 3, 0, 1, 2, 3, 0], 3.1),
        "batch",
        False,
    ),
    "its own are less sure": (sure_of(EVEN), sure_of(EVEN), sure_of(EVEN, 3), "batch", False),
    "its own are sure and lost": (sure_of(EVEN, 3), sure_of(EVEN, 2), sure_of(WRONG), "batch", False),
    "one class, the stream shows it": (sure_of(EVEN, 2), sure_of(ONE), sure_of(ONE, 3), "stream", True),
    "one class, its own are surer still": (sure_of(EVEN, 2), sure_of(ONE, 3), sure_of(ONE), "source", True),
    "one class, its own are lost": (sure_of(EVEN, 2), sure_of(ONE, 3), sure_of(WRONG), "stream", True),
    "the stream is less sure of fewer": (sure_of(EVEN), sure_of(ONE, 2), sure_of(EVEN, 2), "batch", False),
}


@pytest.fixture
def looked(monkeypatch):
    """Give the state of a method after a look, and what the look gave, where the source model answers as told."""

    def after(opinions, method="bn", model=None, **earlier):
        answers = dict(zip(("batch", "stream", "source"), opinions, strict=False))
        monkeypatch.setattr(trust, "source_answer", lambda state, x, by: answers[by])
        state = steep.adapt(model or Prism(), method, guard="recover")._state
        vars(state).update(earlier)
        return state, trust.look(state, torch.empty(20))

    return after


@pytest.mark.parametrize("case", OPINIONS)
def test_a_look_trusts_who_is_sure_for_a_reason(looked, case):
    *opinions, trusted, uneven = OPINIONS[case]
    state, _ = looked(opinions)
    assert (state.watch_trusted, state.watch_uneven) == (trusted, uneven)


@pytest.mark.parametrize("case", OPINIONS)
def test_of_a_method_that_does_not_normalise_by_the_batch_only_the_source_model_can_take_the_place(looked, case):
    """It needs to be clearly surer, or the batch to be of few classes; the stream's statistics are of no use to it."""
    *opinions, trusted, uneven = OPINIONS[case]
    state, answers = looked(opinions, "pl")
    assert answers == (opinions[2], opinions[2])
    clearly = case == "its own are surer and agree" or trusted == "source"
    assert (state.watch_trusted, state.watch_uneven) == ("source" if clearly else "batch", uneven)


@pytest.mark.parametrize("case", OPINIONS)
def test_a_method_that_mixes_statistics_is_trusted_unless_the_batch_is_of_few_classes(looked, case):
    *opinions, trusted, uneven = OPINIONS[case]
    state, answers = looked(opinions, "alpha-bn")
    assert answers == (opinions[2], opinions[2])
    assert (state.watch_trusted, state.watch_uneven) == (trusted if uneven else "batch", uneven)


@pytest.mark.parametrize("method", ["bn", "alpha-bn", "memo", "dua", "rotta"])
def test_the_batch_alone_is_the_same_question_for_every_method(method):
    """Whatever the method mixes or keeps, the source model normalises by the batch; and nothing of that stays."""
    model = Prism()
    state = steep.adapt(model, method, guard="recover", precision="float32")._state
    x, _ = rainbow(0)
    by_batch = trust.source_answer(state, x, "batch")
    mean, var = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3), correction=0)
    h = (x - mean[:, None, None]) / (var[:, None, None] + model.norm.eps).sqrt()
    assert torch.allclose(by_batch, model.head(h.mean(dim=(2, 3))), atol=1e-3)
    assert torch.allclose(state.watch_mean[0], mean / 3, atol=1e-5)  # a prior of two looks, at zero
    assert torch.allclose(trust.source_answer(state, x, "source"), model.eval()(x), atol=1e-5)
    again = steep.adapt(model, method, guard="recover", precision="float32")._state
    assert torch.allclose(state.model(x), again.model(x))


@pytest.mark.parametrize(("last", "first", "uneven"), [(1.0, True, False), (3.0, True, True), (1.0, False, True)])
def test_a_first_batch_that_is_unusual_in_every_layer_has_shifted(looked, last, first, uneven):
    """Few classes show in the last layer; the distance of N(m, 1) from N(0, 1) is m² / 2."""
    model = torch.nn.Sequential(*(torch.nn.BatchNorm2d(4) for _ in range(4))).eval()
    earlier = {} if first else {"watch_recent": [1.0] * 6}
    mean = [torch.full((4,), m) for m in (1.0, 0.9, 1.1, last)]
    state, _ = looked(OPINIONS["one class, the stream shows it"], model=model, watch_mean=mean, **earlier)
    assert state.watch_uneven == uneven


@pytest.mark.parametrize(("answered", "uneven"), [(17, False), (3, True)])
def test_fewer_images_than_classes_are_no_few_classes(looked, answered, uneven):
    """Twenty images of a hundred classes cannot show more than twenty of them; three are too few all the same."""
    few = 8 * torch.eye(100)[torch.arange(20) % answered]
    state, _ = looked((torch.zeros(20, 100), few, torch.zeros(20, 100)))
    assert state.watch_uneven == uneven


@pytest.mark.parametrize(("usual", "behind"), [(20, 0.5), (14, 0.35), (13, 0.0), (4, 0.0)])
def test_a_source_model_that_disagrees_with_itself_is_no_measure_of_a_method(usual, behind):
    """Of twenty images; the method agrees on none of them."""
    state = steep.adapt(Prism(), "bn", guard="recover")._state
    by_source, by_batch = sure_of(EVEN), sure_of([*EVEN[:usual], *((k + 1) % 4 for k in EVEN[usual:])])
    trust.note_agreement(state, sure_of([(k + 2) % 4 for k in EVEN]), by_batch, by_source)
    assert state.watch_behind == pytest.approx(behind)


def test_a_layer_that_is_not_used_tells_nothing_of_the_first_batch(looked):
    """It stays as it was, and would seem to say that the last layer is as usual."""
    model = torch.nn.Sequential(*(torch.nn.BatchNorm2d(4) for _ in range(5))).eval()
    mean = [torch.full((4,), m) for m in (1.0, 0.9, 1.1, 3.0, 0.0)]
    state, _ = looked(OPINIONS["one class, the stream shows it"], model=model, watch_mean=mean)
    assert state.watch_uneven


def test_an_answer_that_is_not_finite_leaves_no_trace_in_what_is_known_of_the_stream():
    adapter, twin = (steep.adapt(Prism(), "bn", guard="recover") for _ in range(2))
    for s in range(3):
        adapter(rainbow(s)[0])
        twin(rainbow(s)[0])
    adapter.model.head.weight.data[0, 0] = float("nan")
    adapter(rainbow(3)[0])
    adapter.model.head.weight.data.copy_(twin.model.head.weight.data)
    for name in ("watch_mean", "watch_var", "watch_looks", "watch_recent", "watch_trusted"):
        assert identical(getattr(adapter._state, name), getattr(twin._state, name)), name
