"""Batches reach the device unharmed, and each protocol is what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_sets import sha

from steep.bench import streaming
from steep.data import PROTOCOLS, Batches, ImageSet, Shift, batches, label_shift, load, stream, streams
from steep.errors import InputError, UnknownNameError
from steep.training import TrainingSpec, loop
from steep.training.run import Split


def numbered(count: int, base: int = 0, side: int = 2) -> ImageSet:
    """Picture i is filled with base + i, so that a stream shows where each picture came from."""
    images = np.repeat((np.arange(count) + base).astype(np.uint8), side * side * 3).reshape(count, side, side, 3)
    labels = np.arange(count) % 5
    return ImageSet(
        images=images, labels=labels, classes=tuple("abcde"), name="n", split="test", origin="", digest=sha(images)
    )


def seen(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> list[int]:
    return [round(value * 255) for x, _ in parts for value in x[:, 0, 0, 0].tolist()]


def test_pixels_arrive_as_they_were() -> None:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    data = ImageSet(images=images, labels=np.arange(5), classes=(), name="", split="", origin="", digest="")
    got = list(batches(data, 2))
    assert [len(y) for _, y in got] == [2, 2, 1]
    x = torch.cat([x for x, _ in got])
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    np.testing.assert_array_equal(x.numpy(), images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255))
    assert torch.cat([y for _, y in got]).tolist() == [0, 1, 2, 3, 4]


def test_a_read_only_map_of_a_file_streams_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", numbered(10).images)
    np.save(tmp_path / "labels.npy", numbered(10).labels)
    data = load("arrays", root=tmp_path)
    assert not data.images.flags.writeable
    for x, _ in batches(data, 3):
        x.add_(1)  # the batch is the caller's own
    assert seen(list(batches(data, 3))) == list(range(10))


def test_shuffle_is_seeded_and_whole() -> None:
    data = numbered(50)
    one, two, three = (seen(list(batches(data, 7, shuffle=seed))) for seed in (1, 1, 2))
    assert one == two
    assert one != three
    assert sorted(one) == list(range(50))
    again = batches(data, 7, shuffle=1)
    assert seen(list(again)) == seen(list(again))
    assert len(again) == 8


def shifts() -> list[Shift]:
    return [
        Shift(name, severity, numbered(7 + severity, 100 * kind + 20 * severity))  # of different lengths
        for kind, name in enumerate(("fog", "snow"))
        for severity in (1, 2, 3)
    ]


def test_reset_per_shift() -> None:
    segments = list(stream("reset", shifts(), 4))
    assert [(segment.name, segment.severity, segment.reset) for segment in segments] == [
        (name, severity, True) for name in ("fog", "snow") for severity in (1, 2, 3)
    ]
    assert seen(list(segments[1].batches)) == list(range(40, 49))


def test_continual_resets_once() -> None:
    assert [segment.reset for segment in stream("continual", shifts())] == [True, False, False, False, False, False]


def test_gradual_rises_and_falls() -> None:
    segments = [(segment.name, segment.severity, segment.reset) for segment in stream("gradual", shifts())]
    path = [("fog", level) for level in (1, 2, 3, 2, 1)] + [("snow", level) for level in (1, 2, 3, 2, 1)]
    assert segments == [(*step, index == 0) for index, step in enumerate(path)]


def test_mixed_holds_every_picture_once_and_many_kinds_per_batch() -> None:
    (segment,) = stream("mixed", shifts(), 20, seed=3)
    values = [seen([batch]) for batch in segment.batches]
    flat = [value for batch in values for value in batch]
    assert sorted(flat) == sorted(int(image[0, 0, 0]) for shift in shifts() for image in shift.load().images)
    assert all(len({value // 20 for value in batch}) >= 3 for batch in values)
    (other,) = stream("mixed", shifts(), 20, seed=4)
    assert seen(list(other.batches)) != flat
    for x, y in segment.batches:  # labels go with their pictures
        assert [(round(value * 255) % 20) % 5 for value in x[:, 0, 0, 0].tolist()] == y.tolist()


def test_recurring_visits_every_shift_again_and_is_reset_once() -> None:
    segments = list(stream("recurring", shifts(), 4, rounds=3))
    once = [(segment.name, segment.severity) for segment in stream("continual", shifts(), 4)]
    assert [(segment.name, segment.severity) for segment in segments] == 3 * once
    assert [segment.reset for segment in segments] == [True] + [False] * 17
    assert len(list(stream("recurring", shifts()))) == 20 * len(once)
    assert seen(list(segments[7].batches)) == seen(list(segments[1].batches))
    with pytest.raises(InputError, match="rounds"):
        stream("recurring", shifts(), rounds=0)


def test_limited_time_is_reset_with_a_pace() -> None:
    segments = list(stream("limited-time", shifts(), 4, pace=0.5))
    assert [segment.pace for segment in segments] == [0.5] * 6
    plain = list(stream("reset", shifts(), 4))
    assert [(s.name, s.severity, s.reset, seen(list(s.batches))) for s in segments] == [
        (s.name, s.severity, s.reset, seen(list(s.batches))) for s in plain
    ]
    assert [segment.pace for segment in plain] == [None] * 6
    for pace in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="pace"):
            stream("limited-time", shifts(), pace=pace)


def test_mixed_and_label_shifted_at_once_has_many_kinds_and_few_classes_in_a_batch() -> None:
    sets = [Shift(name, 5, numbered(100, 100 * kind)) for kind, name in enumerate(("fog", "snow"))]
    (segment,) = stream("mixed-label-shift", sets, 20, seed=3, delta=0.01)
    parts = list(segment.batches)
    assert sorted(seen(parts)) == list(range(200))
    assert np.mean([len(set(y.tolist())) for _, y in parts]) < 2.5  # of five; in an even stream nearly all
    assert np.mean([len({value // 100 for value in seen([part])}) for part in parts]) > 1.9
    for x, y in parts:
        assert [round(value * 255) % 5 for value in x[:, 0, 0, 0].tolist()] == y.tolist()
    assert list(stream("mixed-label-shift", [], 20)) == []


def test_an_order_runs_over_the_sets_one_after_the_other() -> None:
    both = Batches((numbered(3), numbered(4, 100)), 2, torch.device("cpu"), np.array([3, 0, 6, 2, 4]))
    assert seen(list(both)) == [100, 0, 103, 2, 101]


def test_label_shift_with_a_delta_near_zero_comes_class_by_class() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(200), 50))
    ordered = labels[label_shift(labels, 1e-6)]
    # sorted, a batch of 1,000 would hold 20 classes; mixed, nearly all 200
    assert np.mean([len(set(ordered[i : i + 1000])) for i in range(0, 10_000, 1000)]) < 25


def test_label_shift_is_bursty_for_small_delta_and_even_for_large() -> None:
    labels = np.arange(2000) % 10

    def kinds(delta: float) -> float:
        order = label_shift(labels, delta, seed=0)
        return float(np.mean([len(set(labels[order[at : at + 50]])) for at in range(0, 2000, 50)]))

    assert kinds(0.01) < 3 < 9 < kinds(1000.0)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=60),
    st.floats(0.01, 100),
    st.integers(0, 1000),
    st.sampled_from([None, 1, 3, 20]),
)
@settings(deadline=None, max_examples=60)
def test_label_shift_is_a_permutation(labels: list[int], delta: float, seed: int, slots: int | None) -> None:
    array = np.array(labels)
    order = label_shift(array, delta, seed=seed, slots=slots)
    assert sorted(order.tolist()) == list(range(len(labels)))
    assert order.tolist() == label_shift(array, delta, seed=seed, slots=slots).tolist()


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_every_protocol_runs_at_batch_size_1_and_repeats(protocol: str) -> None:
    def run() -> list[tuple[str, int, bool, list[int]]]:
        return [
            (segment.name, segment.severity, segment.reset, seen(list(segment.batches)))
            for segment in stream(protocol, shifts(), 1, seed=5)
        ]

    assert run() == run()
    assert run()[0][2]
    first, *_ = stream(protocol, shifts()[:1], 1)
    assert {len(y) for _, y in first.batches} == {1}


def test_shifts_are_loaded_when_their_turn_comes() -> None:
    loaded: list[int] = []

    def source(index: int) -> ImageSet:
        loaded.append(index)
        return numbered(3)

    lazy = [Shift("fog", index, lambda index=index: source(index)) for index in (1, 2)]  # type: ignore[misc]
    running = stream("reset", lazy)
    assert loaded == []
    next(running)
    assert loaded == [1]


def test_wrong_calls() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'continual'"):
        stream("continal", shifts())
    with pytest.raises(InputError, match="batch_size: expected 1 or more, got 0"):
        batches(numbered(3), 0)
    with pytest.raises(InputError, match="delta"):
        label_shift(np.zeros(3, np.int64), 0.0)
    with pytest.raises(InputError, match="different shapes"):
        list(stream("mixed", [Shift("a", 1, numbered(3)), Shift("b", 1, numbered(3, side=4))]))
    with pytest.raises(InputError, match="not both"):
        batches(numbered(3), shuffle=1, order=np.arange(3))


@pytest.mark.gpu
def test_batches_are_made_on_the_device() -> None:
    x, y = next(iter(batches(numbered(10), 4, device="cuda")))
    assert x.is_cuda
    assert y.is_cuda
    assert torch.equal(x.cpu(), next(iter(batches(numbered(10), 4)))[0])


@pytest.mark.parametrize("delta", [0, -1, float("nan"), float("inf")])
def test_label_shift_needs_a_real_delta(delta: float) -> None:
    with pytest.raises(InputError, match="delta: expected a number more than 0, got"):
        label_shift(np.arange(10) % 2, delta)


def test_every_path_makes_pixels_of_bytes_with_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, dividing by the number 255 rounds otherwise than dividing by a tensor: there may be one way only."""
    calls = []

    def counted(images: torch.Tensor, **options: torch.memory_format) -> torch.Tensor:
        calls.append(len(images))
        return original(images, **options)

    original = streams.to_floats
    for module in (streams, streaming, loop):
        monkeypatch.setattr(module, "to_floats", counted)
    data = load("digits", limit=8)
    plain, resident = list(batches(data, 4)), list(streaming.resident(batches(data, 4)))
    assert calls == [4, 4, 4, 4]
    assert all(torch.equal(x, a) for (x, _), (a, _) in zip(plain, resident, strict=True))
    spec = TrainingSpec(recipe="r", data="digits", model="wrn-10-1", epochs=1, batch_size=4, lr=0.1)
    loop.evaluate(torch.nn.Flatten(), Split.on(torch.device("cpu"), data), spec)
    assert calls == [4] * 6


@pytest.mark.gpu
def test_a_gpu_gives_the_same_pixels_on_every_path() -> None:
    data = load("digits", limit=200)
    there = batches(data, 50, device="cuda")
    for (x, _), (a, _), (c, _) in zip(there, streaming.resident(there), batches(data, 50), strict=True):
        assert torch.equal(x, a)
        assert torch.equal(x.cpu(), c)
