"""Ctrl-C between two steps, never inside one: half an update could not be resumed from."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class DeferredInterrupt:
    """Inside its block SIGINT and SIGTERM are remembered instead of obeyed; the second one gets through.

    >>> with DeferredInterrupt() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupt.received == signal.SIGINT
    True
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._handlers: dict[int, Any] = {}  # those of before

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    def pass_on(self) -> None:
        """Let the remembered signal do now what it would have done."""
        self.__exit__()
        if self.received is not None:
            signal.raise_signal(self.received)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self.__exit__()
            signal.raise_signal(number)
        self.received = number
