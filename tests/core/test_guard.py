"""The guard: planted faults leave no trace, good batches never notice, and collapse is noticed."""

from __future__ import annotations

import math
import threading
import warnings

import pytest
import torch
from torch import nn

import steep
from contract import answering, identical
from nets import few, images, net
from steep.core.method import Need
from steep.core.run import runner as runner_module
from steep.core.run import trust, watched
from steep.core.run.runner import Runner
from steep.errors import GuardError, InputError, SteepWarning
from steep.methods.tent import Tent

QUICK = {
    "tea": {"sgld_steps": 2, "buffer_size": 64},
    "dua": {"images": 10**6, "copies": 3},
    "pl": {"threshold": 0.3, "lr": 1e-3},
    "eta": {"novelty": 2.0},
    "eata": {"novelty": 2.0},
    "deyo": {"margin": 9.0, "drop": -1.0},
    "rdumb": {"novelty": 2.0},
    "cotta": {"copies": 2},
    "memo": {"copies": 2},
    "rotta": {"memory": 8, "every": 12},
}
MOVING = [name for name, method in steep.METHODS.items() if method.moves]

# most tests here plant such faults; that they are warned about is a test of its own
pytestmark = pytest.mark.filterwarnings("ignore:step undone, and its batch .* not finite")


@pytest.fixture(autouse=True)
def every_batch_is_large_enough(monkeypatch):
    """What small batches get, and what is learned from whom, is in test_watched.py."""
    monkeypatch.setattr(watched, "FULL", 1)
    monkeypatch.setattr(trust, "UNEVEN", math.inf)
    monkeypatch.setattr(trust, "AGREES_WITH_BATCH", math.inf)
    monkeypatch.setattr(trust, "why_lost", lambda *_: None)


class Brittle(nn.Module):
    """A net that answers NaN for very bright batches: the input is fine, the model is not."""

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__()
        self.net = model or net()

    def forward(self, x):
        logits = self.net(x)
        return logits * torch.where(x.mean() > 5, math.nan, 1.0)


def adapter_for(method: str, model: nn.Module | None = None, **options) -> steep.Adapter:
    return steep.adapt(model or net(), method, source=[images()], **QUICK.get(method, {}), **options)


@pytest.mark.parametrize("method", MOVING)
def test_a_step_that_gives_nan_is_undone_and_the_good_ones_never_notice(method):
    good = [images(seed=s) for s in range(6)]
    undisturbed = adapter_for(method, Brittle())
    expected = [undisturbed(x) for x in good]
    disturbed = adapter_for(method, Brittle())
    answers = []
    for i, x in enumerate(good):
        answers.append(disturbed(x))
        if i in (1, 3):
            before = disturbed.state_dict()
            disturbed(x + 10)
            after = disturbed.state_dict()
            assert identical(before["state"], after["state"])
            report = disturbed.last
            if report.undone:  # a method may also find nothing to learn from in NaN logits, and say so itself
                assert "not finite" in report.skipped
    assert all(map(torch.equal, answers, expected))


def test_report_and_counter_and_the_other_modes():
    adapter = adapter_for("tent", Brittle())
    adapter(images())
    adapter(images() + 10)
    assert adapter.last.undone == 1
    assert adapter.last.used == 0
    assert adapter.last.skipped == "the loss is not finite, the logits are not finite, the parameters are not finite"
    adapter(images())
    assert adapter.last.undone == 1
    assert adapter.last.skipped is None
    adapter.reset()
    adapter(images())
    assert adapter.last.undone == 0

    strict = adapter_for("tent", Brittle(), guard="raise")
    strict(images())
    before = strict.state_dict()
    with pytest.raises(GuardError, match=r"the loss is not finite.*model is as before"):
        strict(images() + 10)
    assert identical(strict.state_dict()["state"], before["state"])

    reckless = adapter_for("tent", Brittle(), guard="off")
    reckless(images() + 10)
    assert any(torch.isnan(p).any() for p in reckless.model.parameters())

    with pytest.raises(InputError, match="guard: expected"):
        adapter_for("tent", guard="maybe")


class Spike(Tent):
    """Takes one step a hundred times too long."""

    at = 15

    def step(self, state, x):
        count = int(state.optimizer.state_dict()["state"].get(0, {}).get("step", 0))
        state.optimizer.param_groups[0]["lr"] = self.lr * (100 if count == self.at else 1)
        return super().step(state, x)


def test_an_update_out_of_proportion_is_undone():
    adapter = steep.adapt(net(), Spike())
    for s in range(Spike.at + 1):
        adapter(images(seed=s))
    assert adapter.last.skipped == "the update is out of proportion"
    assert adapter.last.undone == 1
    free = steep.adapt(net(), Spike(), guard="off")
    for s in range(Spike.at + 1):
        free(images(seed=s))
    assert farthest(free) > 3 * farthest(adapter)


def farthest(adapter: steep.Adapter) -> float:
    pairs = zip(adapter.model.parameters(), net().parameters(), strict=True)
    return max(float((p - q).detach().abs().max()) for p, q in pairs)


class HalfWay(torch.optim.Adam):
    """Raises after half of its parameters have moved."""

    fail = False

    def step(self, closure=None):
        if HalfWay.fail:
            group = self.param_groups[0]
            whole = group["params"]
            group["params"] = whole[: len(whole) // 2]
            super().step()
            group["params"] = whole
            raise RuntimeError("power cut")
        return super().step(closure)


class Fragile(Tent):
    def init(self, source):
        state = super().init(source)
        state.optimizer = HalfWay(state.model.adapted().values(), lr=self.lr)
        return state


@pytest.mark.parametrize("guard", ["skip", "recover", "raise"])
def test_an_optimiser_that_raises_half_way_leaves_no_trace(guard, monkeypatch):
    adapter = steep.adapt(net(), Fragile(), guard=guard)
    twin = steep.adapt(net(), Fragile())
    adapter(images(seed=1))
    twin(images(seed=1))
    before = adapter.state_dict()
    with torch.no_grad():
        expected = twin.model(images(seed=2))
    monkeypatch.setattr(HalfWay, "fail", True)
    if guard == "raise":
        with pytest.raises(RuntimeError, match="power cut"):
            adapter(images(seed=2))
    else:
        with pytest.warns(SteepWarning, match="answered without adapting: the step raised RuntimeError.'power cut'"):
            assert torch.equal(adapter(images(seed=2)), expected)
    monkeypatch.setattr(HalfWay, "fail", False)
    assert identical(adapter.state_dict()["state"], before["state"])
    assert torch.equal(adapter(images(seed=3)), twin(images(seed=3)))


class Shy(nn.Module):
    """Does not take gradients, or nothing at all."""

    broken = False

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x):
        if torch.is_grad_enabled() or Shy.broken:
            raise RuntimeError("no, thank you")
        return self.net(x)


def takes_gradients_of_test_images_alone(method: str) -> bool:
    kind = steep.METHODS[method]
    return hasattr(kind, "params") and Need.SOURCE_IMAGES not in kind.needs


@pytest.mark.parametrize("method", [m for m in MOVING if takes_gradients_of_test_images_alone(m)])
@pytest.mark.parametrize("guard", ["skip", "recover"])
def test_a_step_that_always_raises_does_not_end_the_stream(method, guard, monkeypatch):
    adapter = adapter_for(method, Shy(), guard=guard)
    normal = adapter_for(method)
    with pytest.warns(SteepWarning) as caught:
        answers = [adapter(images(seed=s)) for s in range(3)]
    assert len(caught) == 1
    source = steep.adapt(net(), "source")
    for s in range(3):  # the source model answers until a first look has been taken
        expected = [normal.method.predict(normal._state, images(seed=s)), source(images(seed=s))]
        assert any(torch.equal(answers[s], answer) for answer in expected[: 1 + (guard == "recover")])
    assert adapter.last.skipped == "the step raised RuntimeError('no, thank you')"
    assert (adapter.last.used, adapter.last.undone) == (0, 3)
    before = adapter.state_dict()
    monkeypatch.setattr(Shy, "broken", True)
    with pytest.raises(RuntimeError, match="no, thank you"):
        adapter(images(seed=4))
    assert identical(adapter.state_dict(), before)


@pytest.mark.parametrize("guard", ["raise", "off"])
def test_the_other_modes_let_what_a_step_raises_through(guard):
    with pytest.raises(RuntimeError, match="no, thank you"):
        adapter_for("tent", Shy(), guard=guard)(images())


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError, GuardError])
def test_what_the_caller_must_know_is_not_kept_from_him(error, monkeypatch):
    adapter = adapter_for("tent")
    adapter(images())
    before = adapter.state_dict()

    def stop(self, state, x):
        next(iter(state.model.adapted().values())).data.zero_()
        raise error("stop")

    monkeypatch.setattr(Tent, "step", stop)
    with pytest.raises(error, match="stop"):
        adapter(images(seed=1))
    assert identical(adapter.state_dict(), before)


BAD = {
    "nan": lambda x: x.masked_fill(x > 0.9, math.nan),
    "inf": lambda x: x.masked_fill(x > 0.9, math.inf),
    "huge": lambda x: x * 1e30,
    "negative infinity": lambda x: x.masked_fill(x > 0.9, -math.inf),
    "integers": lambda x: (x * 255).long(),
    "bool": lambda x: x > 0.5,
    "complex": lambda x: x.to(torch.complex64),
    "rank 3": lambda x: x[0],
    "rank 2": lambda x: x.flatten(1),
    "rank 6": lambda x: x[None, None],
    "channels": lambda x: x[:, :2],
    "empty": lambda x: x[:0],
    "no pixels": lambda x: x[..., :0],
    "meta": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse(),
    "objects": lambda x: x.numpy().astype(object),
    "list": lambda x: x.tolist(),
    "images": lambda x: [*x],
    "none": lambda x: None,
    "poison": lambda x: x + 10,  # a good batch that makes the model answer NaN
}
ODD = {  # unusual, but images all the same: they are adapted on like their plain twin
    "not contiguous": (lambda x: x.flip(0).flip(0).permute(0, 1, 3, 2), lambda x: x.permute(0, 1, 3, 2).contiguous()),
    "requires grad": (lambda x: x.clone().requires_grad_(True), lambda x: x),
    "double": (lambda x: x.double(), lambda x: x),
    "one image": (lambda x: x[:1], lambda x: x[:1]),
    "constant": (lambda x: torch.full_like(x, 0.5), lambda x: torch.full_like(x, 0.5)),
    "one picture many times": (lambda x: x[:1].expand(9, -1, -1, -1), lambda x: x[:1].repeat(9, 1, 1, 1)),
    "expanded": (lambda x: x[:, :1].expand(-1, 3, -1, -1), lambda x: x[:, :1].repeat(1, 3, 1, 1)),
}
ROUNDS = 3  # × every method × (20 bad + 7 odd)


@pytest.mark.parametrize("method", steep.METHODS)
def test_campaign(method):
    """Bad batches mixed into a good stream: no crash, no poisoned parameter, the good answers as without them."""
    adapter, twin = adapter_for(method, Brittle()), adapter_for(method, Brittle())
    refused = odd = 0
    for r in range(ROUNDS):
        x = images(few(method, 17), seed=1000 + r)
        for name, spoil in BAD.items():
            before = adapter.state_dict()["state"]
            if name == "poison":
                adapter(spoil(x))
            else:
                with pytest.raises(InputError):
                    adapter(spoil(x))
            assert identical(adapter.state_dict()["state"], before), name
            refused += 1
        for name, (strange, plain) in ODD.items():
            assert torch.equal(adapter(strange(x)), twin(plain(x))), name
            odd += 1
        assert torch.equal(adapter(x), twin(x))
    assert all(torch.isfinite(t).all() for t in adapter.state_dict()["state"]["model"].values())
    print(f"{method}: {refused} bad and {odd} odd batches among {ROUNDS} good ones")
    assert (refused, odd) == (20 * ROUNDS, 7 * ROUNDS)


def test_mixed_batches_adapt_on_the_good_images_and_answer_nan_for_the_bad():
    x = images(20)
    spoilt = x.clone()
    spoilt[3, 0, 0, 0] = math.nan
    spoilt[7] = 1e9
    good = torch.tensor([i not in (3, 7) for i in range(20)])
    adapter, twin = adapter_for("tea", bad_images="nan"), adapter_for("tea")
    answer, expected = adapter(spoilt), twin(x[good])
    assert torch.equal(answer[good], expected)
    assert torch.isnan(answer[~good]).all()
    assert identical(adapter.state_dict()["state"], twin.state_dict()["state"])
    before = adapter.state_dict()
    answer = adapter(torch.full_like(x, math.nan))
    assert answer.shape == (20, 5)
    assert torch.isnan(answer).all()
    assert adapter.last.skipped == "no good image in the batch"
    assert identical(adapter.state_dict(), before)
    with pytest.raises(InputError, match="bad_images: expected 'raise' or 'nan'"):
        adapter_for("tea", bad_images="ignore")


def test_threads_wait_for_each_other():
    batches = [images(seed=s) for s in range(24)]
    adapter = adapter_for("tent")
    seen: list[int] = []
    original = adapter._runner.run

    def watched(*args):
        seen.append(1)
        assert sum(seen) == 1, "two calls at once"
        try:
            return original(*args)
        finally:
            seen.append(-1)

    adapter._runner.run = watched
    answers: dict[int, torch.Tensor] = {}
    workers = [
        threading.Thread(target=lambda i=i: [answers.__setitem__(j, adapter(batches[j])) for j in range(i, 24, 4)])
        for i in range(4)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(answers) == 24
    assert all(torch.isfinite(a).all() for a in answers.values())
    assert sum(seen) == 0


class Prism(nn.Module):
    """Five channels, five classes: the brightest channel names the class."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(5)
        self.head = nn.Linear(5, 5, bias=False)
        self.head.weight.data = 4 * torch.eye(5)

    def forward(self, x):
        return self.head(self.norm(x).mean(dim=(2, 3)))


def rainbow(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(60) % 5
    bright = torch.nn.functional.one_hot(labels, 5)[:, :, None, None] * 0.4
    return images(60, seed=seed, channels=5) * 0.5 + bright, labels


class Wrecker(Tent):
    """Pulls the bias of one class up a little with each step: every step is healthy, the stream is lost."""

    def step(self, state, x):
        done = super().step(state, x)
        with torch.no_grad():
            state.model.net.norm.bias[4] += 0.05
        return done


@pytest.mark.parametrize("method", MOVING)
def test_healthy_streams_are_left_alone(method):
    """The first four batches are looked at, and every eighth."""
    hyper = QUICK[method] if method in ("tea", "dua", "cotta") else {}
    source = [rainbow(0)[0]]
    guarded, free = (steep.adapt(Prism(), method, source=source, guard=g, **hyper) for g in ("recover", "off"))
    for s in range(18):
        x, _ = rainbow(s)
        assert torch.equal(guarded(x), free(x))
    assert guarded.last.undone == 0


class Once(Tent):
    """Fails once, after its gradients have been taken."""

    fail = False

    def step(self, state, x):
        if Once.fail:
            Once.fail = False
            state.model(x).square().sum().backward()
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return super().step(state, x)


@pytest.mark.parametrize("guard", ["skip", "raise", "off"])
def test_a_failed_step_leaves_no_gradient_for_the_next(guard):
    adapter, twin = (steep.adapt(net(), Once(), guard=guard) for _ in range(2))
    adapter(images())
    twin(images())
    Once.fail = True
    if guard == "skip":
        adapter(images(seed=8))
        assert "without adapting" in adapter.last.skipped
    else:
        with pytest.raises(torch.cuda.OutOfMemoryError):
            adapter(images(seed=8))
    assert all(torch.equal(adapter(images(seed=s)), twin(images(seed=s))) for s in range(1, 5))


class Saturated(nn.Module):
    """So sure of bright images that they give no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x):
        return self.net(x) * torch.where(x.mean() > 5, 0.0, 1.0) + torch.where(x.mean() > 5, 1e4, 0.0) * torch.eye(5)[0]


@pytest.mark.parametrize("method", ["tent", "sar"])
def test_quiet_data_does_not_freeze_the_model(method):
    adapter = (
        steep.adapt(Saturated(), method, recover_below=-1.0) if method == "sar" else steep.adapt(Saturated(), method)
    )
    for s in range(30):
        adapter(images(seed=s) + 10)
    for s in range(60):
        adapter(images(seed=s))
    assert adapter.last.undone <= runner_module.PATIENCE
    assert adapter.last.skipped is None


def test_buffers_that_are_not_finite_are_no_fault():
    model = net()
    model.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))
    model.register_buffer("unset", torch.full((3,), math.nan))
    adapter = steep.adapt(model, "tent")
    for s in range(5):
        adapter(images(seed=s))
    assert adapter.last.undone == 0


class Cast(nn.Module):
    def forward(self, x):
        return x.to(torch.float64 if x.dtype == torch.float32 else torch.float32)


def test_parameters_of_every_dtype_are_watched():
    model = net()
    model[5] = nn.Sequential(Cast(), nn.BatchNorm2d(8).double(), Cast())
    adapter = steep.adapt(model, Poison())
    adapter(images())
    assert adapter.last.skipped == "the parameters are not finite"


class Poison(Tent):
    """Poisons a parameter of another dtype than the rest."""

    def step(self, state, x):
        done = super().step(state, x)
        with torch.no_grad():
            state.model.adapted()["5.1.weight"].fill_(math.nan)
        return done


@pytest.mark.parametrize("guard", ["skip", "recover"])
@pytest.mark.parametrize("method", MOVING)
def test_a_verdict_read_late_undoes_just_the_same(method, guard, monkeypatch):
    """What a GPU does, on the CPU: the device reverts at once, the host when the next batch comes."""
    monkeypatch.setattr(Runner, "asynchronous", ("cpu",))
    hyper = {"source": [rainbow(0)[0]], **QUICK.get(method, {}), "guard": guard}
    late, twin = (steep.adapt(Brittle(Prism()), method, **hyper) for _ in range(2))
    for s in range(13):
        x, _ = rainbow(s)
        assert torch.equal(late(x), twin(x)), s
        if s in (3, 4, 11):
            late(x + 10)
    state, other = late.state_dict()["state"], twin.state_dict()["state"]
    assert all(identical(state[k], other[k]) for k in state if not k.startswith("watch_"))  # looks are counted
    assert late.last.undone in (0, 3)


def test_dua_is_whole_after_a_failure(monkeypatch):
    adapter, twin = adapter_for("dua"), adapter_for("dua")
    calls = []
    forward = nn.Sequential.forward

    def third_fails(self, x):
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("power cut")
        return forward(self, x)

    adapter._shapes.add(images().shape[1:])
    with monkeypatch.context() as patch:
        patch.setattr(nn.Sequential, "forward", third_fails)
        with pytest.warns(SteepWarning, match="power cut"):
            adapter(images())
    assert not any(m.training for m in adapter.model.modules())
    assert all(torch.equal(adapter(images(seed=s)), twin(images(seed=s))) for s in range(3))


def test_reset_waits_for_a_batch_in_another_thread():
    adapter = adapter_for("tea")
    faults = []

    def adapting():
        try:
            for s in range(30):
                adapter(images(seed=s))
        except Exception as error:
            faults.append(error)

    worker = threading.Thread(target=adapting)
    worker.start()
    while worker.is_alive():
        adapter.reset()
        adapter.last
    worker.join()
    assert not faults


def test_out_of_memory_is_answered_in_pieces(monkeypatch):
    adapter, twin = adapter_for("tent"), adapter_for("tent")
    adapter(images(seed=1))
    twin(images(seed=1))
    before = adapter.state_dict()
    step, forward = Tent.step, nn.Sequential.forward

    def starved(self, x):
        if len(x) > 5:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(self, x)

    x = images(seed=2)
    with monkeypatch.context() as patch:
        patch.setattr(nn.Sequential, "forward", starved)
        answer = adapter(x)
    assert identical(adapter.state_dict()["state"], before["state"])
    with torch.no_grad():
        expected = torch.cat([twin.model(piece) for piece in x.chunk(4)])
    assert torch.equal(answer, expected)
    assert "Lower the batch size" in adapter.last.skipped
    assert Tent.step is step

    def starved_for_good(self, x):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(nn.Sequential, "forward", starved_for_good)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            adapter(x)
    assert identical(adapter.state_dict()["state"], before["state"])


class Unrepeatable(nn.Module):
    """Uses a kernel that torch knows to be nondeterministic: on a CPU, the backward of a bare `put_`."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x):
        logits = self.net(x)
        return logits.clone().put_(torch.zeros(1, dtype=torch.long), logits.flatten()[:1])


def test_deterministic_refuses_what_cannot_be_and_restores_the_setting():
    with pytest.raises(InputError, match=r"deterministic=True.*put_"):
        steep.adapt(Unrepeatable(), "tent", deterministic=True)(images())
    assert not torch.are_deterministic_algorithms_enabled()
    a, b = (steep.adapt(net(), "tea", deterministic=True, **QUICK["tea"]) for _ in range(2))
    assert all(torch.equal(a(images(seed=s)), b(images(seed=s))) for s in range(5))
    assert not torch.are_deterministic_algorithms_enabled()


class BrittleCounter(Brittle):
    """Counts its calls in a buffer that it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1
        return super().forward(x)


def test_a_buffer_that_a_forward_replaced_is_put_back_too():
    adapter = adapter_for("tent", BrittleCounter())
    adapter(images())
    before = float(adapter.model.calls)
    adapter(images() + 10)
    assert adapter.last.skipped
    assert float(adapter.model.calls) == before


@pytest.mark.parametrize("guard", ["off", "skip", "recover"])
def test_no_guard_lets_memory_grow(guard):
    adapter = adapter_for("tea", guard=guard)
    for s in range(5):
        adapter(images(seed=s))
    assert len(adapter._state.buffer.journal or []) <= 1


def test_the_first_step_that_is_not_finite_is_warned_about():
    adapter = adapter_for("tent", Brittle())
    adapter(images())
    with pytest.warns(SteepWarning, match="answered without adapting: the loss is not finite, the logits are not"):
        adapter(images() + 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapter(images() + 10)
    assert adapter.last.undone == 2


class Masked(nn.Module):
    """Some classes are ruled out, as a zero-shot or continual model does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x):
        return self.net(x).masked_fill(torch.tensor([False, True, False, False, True]), -math.inf)


@pytest.mark.parametrize("method", MOVING)
def test_classes_that_are_ruled_out_are_no_fault(method):
    hyper = {**QUICK, "sar": {"margin_classes": None, "margin": 9.0}, "eta": {"margin_classes": None, "margin": 9.0}}
    model = Masked()
    adapter = steep.adapt(model, method, source=[images()], guard="raise", **hyper.get(method, {}))
    before = answering(adapter)
    for seed in range(3):
        logits = adapter(images(seed=seed))
        assert logits[:, [1, 4]].isneginf().all()
        assert logits[:, [0, 2, 3]].isfinite().all()
    assert not identical(before, answering(adapter))
