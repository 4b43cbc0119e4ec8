"""Settings of the whole process come back, whichever adapters work at the same time."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
import torch

import steep
from nets import images, net
from steep.core.run.contexts import kernels


def flags() -> tuple[bool, bool, bool]:
    deterministic = torch.are_deterministic_algorithms_enabled()
    return deterministic, torch.is_deterministic_algorithms_warn_only_enabled(), torch.backends.cudnn.benchmark


@pytest.fixture(autouse=True)
def _as_before():
    before = flags()
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    torch.backends.cudnn.benchmark = before[2]


@pytest.fixture
def entered():
    """Enter a context that is left whenever the caller likes."""

    def enter(fastest: bool = False, deterministic: bool = False) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(kernels(fastest, deterministic))
        return stack

    return enter


STRICT = True, False, False
WARNING = True, True, False


@pytest.mark.parametrize("callers", [(False, False, False), (False, False, True), (True, True, True)])
def test_the_last_to_leave_sets_what_the_caller_had(entered, callers):
    torch.use_deterministic_algorithms(callers[0], warn_only=callers[1])
    torch.backends.cudnn.benchmark = callers[2]
    first = entered(deterministic=True)
    second = entered(deterministic=True)
    assert flags() == STRICT
    first.close()
    assert flags() == STRICT
    second.close()
    assert flags() == callers
    fast = entered(fastest=True)
    assert flags() == (callers[0], callers[1], True)
    exact = entered(deterministic=True)
    assert flags() == WARNING  # the other has not asked to be refused anything
    fast.close()
    assert flags() == STRICT
    fast = entered(fastest=True)
    exact.close()
    assert flags() == (callers[0], callers[1], True)
    fast.close()
    assert flags() == callers


def test_a_caller_that_is_strict_stays_so(entered):
    torch.use_deterministic_algorithms(True)
    plain, exact = entered(), entered(deterministic=True)
    assert flags() == STRICT
    exact.close()
    plain.close()
    assert flags() == STRICT


def test_an_adapter_that_asks_for_nothing_sets_nothing(entered):
    plain = entered()
    torch.use_deterministic_algorithms(True)  # in a callback, say
    torch.backends.cudnn.benchmark = True
    plain.close()
    assert flags() == (True, False, True)


def test_deterministic_adapters_in_threads_leave_torch_as_it_was():
    inside, out = threading.Barrier(2, timeout=30), threading.Event()
    seen = []

    def second_to_leave(adapter, logits):
        inside.wait()
        assert out.wait(30)
        seen.append(flags())

    one = steep.adapt(net(), "bn", deterministic=True, callbacks=[lambda adapter, logits: inside.wait()])
    two = steep.adapt(net(), "bn", deterministic=True, callbacks=[second_to_leave])
    before = flags()
    threads = [
        threading.Thread(target=lambda: (one(images()), out.set())),
        threading.Thread(target=lambda: two(images())),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [STRICT]
    assert flags() == before
