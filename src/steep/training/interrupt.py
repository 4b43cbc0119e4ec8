"""Ctrl-C between two steps, never inside one: half an update could not be resumed from."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupt:
    """Remembers a signal until it suits."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def hold(self) -> None:
        """Take SIGINT and SIGTERM over, where that is possible: only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)

    def release(self) -> None:
        """Give them back to whoever had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def pass_on(self) -> None:
        """Let the remembered signal do now what it would have done."""
        self.release()
        if self.received is not None:
            signal.raise_signal(self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:  # asked twice: at once, then
            self.release()
            signal.raise_signal(number)
        self.received = number


@contextlib.contextmanager
def held() -> Iterator[Interrupt]:
    """Hold Ctrl-C back inside the block; the second one gets through.

    >>> with held() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupt.received == signal.SIGINT
    True
    """
    interrupt = Interrupt()
    interrupt.hold()
    try:
        yield interrupt
    finally:
        interrupt.release()
