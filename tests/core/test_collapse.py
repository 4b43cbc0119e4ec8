"""An early collapse: what is usual comes from the source model, which is also what there is to come back to."""

from __future__ import annotations

import pytest
import torch
from test_guard import MOVING, QUICK, Prism, rainbow

import steep
from contract import identical
from steep.core.method import Method
from steep.core.run import collapse
from steep.errors import SteepWarning
from steep.methods.tent import Tent


class Smash(Tent):
    """Every step ruins the model at once, by a finite and ordinary amount: all images are of the last class."""

    def step(self, state, x):
        done = super().step(state, x)
        with torch.no_grad():
            state.model.net.norm.bias[4] = 10.0
        return done


def played(adapter: steep.Adapter, batches: int) -> tuple[list[float], list[tuple[int, str]], list[int]]:
    """Accuracy of every batch; where it recovered, and how; where it rested."""
    right, events, rests = [], [], []
    for s in range(batches):
        x, labels = rainbow(s)
        right.append(float((adapter(x).argmax(dim=1) == labels).float().mean()))
        if adapter.last.note:
            events.append((s, adapter.last.note))
        if adapter.last.skipped == "resting: the model had collapsed soon after it began to adapt":
            rests.append(s)
            assert adapter.raw.verdict is None  # no step, nothing to judge
    return right, events, rests


@pytest.mark.parametrize("options", [{}, {"predict": "after"}, {"steps": 2}, {"episodic": True, "predict": "after"}])
def test_a_collapse_at_the_first_step_is_noticed_at_the_first_look(options):
    lost, _, _ = played(steep.adapt(Prism(), Smash(), **options), 20)
    assert sum(lost[1:]) / 19 < 0.3
    right, events, rests = played(steep.adapt(Prism(), Smash(), guard="recover", **options), 160)
    assert events[0][0] == 9
    assert all("recovered the source model: the answers use" in what for _, what in events)
    for (at, _), rest in zip(events, (10, 20, 40), strict=False):  # then it tries again
        assert {*range(at + 1, at + 1 + rest)} <= {*rests}
        assert at + 1 + rest not in rests
    assert min(right[i] for i in rests) > 0.9  # they are the source model's
    assert sum(right[100:]) / 60 > 0.75


def test_only_the_first_batches_cost_a_pass_more_and_only_where_something_adapts():
    for method in ("source", "bn", "tent"):
        model, calls = Prism(), {}
        for guard in ("off", "recover"):
            adapter = steep.adapt(model, method, guard=guard)
            passes: list[int] = []
            adapter.model.register_forward_hook(lambda *_, passes=passes: passes.append(1))
            played(adapter, 70)
            calls[guard] = len(passes)
        more = collapse.FIRST * collapse.PERIOD if method == "tent" else 0
        assert calls["recover"] == calls["off"] + more


@pytest.mark.parametrize("method", MOVING)
def test_the_source_model_answers_and_leaves_no_trace(method):
    source = [rainbow(0)[0]]
    hyper = QUICK[method] if method in ("tea", "dua") else {}
    guarded, free = (steep.adapt(Prism(), method, source=source, guard=g, **hyper) for g in ("recover", "skip"))
    plain = steep.adapt(Prism(), method, source=source, **hyper)
    by_model = steep.METHODS[method].predict is Method.predict
    seen = []
    for s in range(4):
        x, _ = rainbow(s)
        answer = plain.model(x).detach() if by_model else plain.method.predict(plain._state, x)
        seen.append(answer.softmax(dim=1).mean(dim=0))
        guarded(x)
        free(x)
    assert identical(guarded.state_dict()["state"], free.state_dict()["state"])
    expected = seen[0]
    for now in seen[1:]:
        expected = 0.9 * expected + 0.1 * now
    torch.testing.assert_close(guarded.state_dict()["watch"]["source"][:5], expected)


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("full"), RuntimeError("no kernel")])
def test_a_source_model_that_cannot_answer_costs_no_answer(error, monkeypatch):
    guarded, free = (steep.adapt(Prism(), "tent", guard=guard) for guard in ("recover", "skip"))
    forward, asked = Prism.forward, []

    def failing(self, x):
        if not torch.is_grad_enabled():
            asked.append(len(x))
            raise error
        return forward(self, x)

    first = rainbow(0)[0]
    assert torch.equal(guarded(first), free(first))  # which also tries the model, without gradients
    monkeypatch.setattr(Prism, "forward", failing)
    x, _ = rainbow(1)
    with pytest.warns(SteepWarning, match="the source model could not answer"):
        answer = guarded(x)
    assert torch.equal(answer, free(x))
    for s in range(2, 30):  # it is not asked again
        x, _ = rainbow(s)
        assert torch.equal(guarded(x), free(x))
        assert guarded.last.used == len(x)
    assert len(asked) == 1
    assert identical(guarded.state_dict()["state"], free.state_dict()["state"])


@pytest.mark.parametrize("stop", [5, 15, 29, 35])
def test_a_stream_goes_on_from_a_file_in_the_middle_of_it_all(stop, tmp_path):
    make = lambda: steep.adapt(Prism(), Smash(), guard="recover")  # noqa: E731
    straight = make()
    answers = [straight(rainbow(s)[0]) for s in range(60)]
    stopped = make()
    for s in range(stop):
        stopped(rainbow(s)[0])
    stopped.save(tmp_path / "state")
    resumed = make()
    resumed.load_state_dict(steep.core.io.saving.load(tmp_path / "state"))
    assert all(torch.equal(resumed(rainbow(s)[0]), answers[s]) for s in range(stop, 60))
    straight.reset()
    assert all(torch.equal(straight(rainbow(s)[0]), answers[s]) for s in range(60))
