"""CUDA graphs: the work of a step is recorded once and then launched as a whole, whatever the host is doing.

What a graph repeats is fixed: shapes, addresses and the order of the kernels. It is recorded when a shape of images has
come twice, and dropped when a tensor of the state has moved to another address.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steep.core.classifier import Classifier
from steep.core.method import State
from steep.core.run.snapshot import HostSnapshot, parts, tensors
from steep.errors import FallbackWarning

WARM = 2  # times that work is done by hand before it is recorded: memory is taken, kernels are chosen and compiled
MOST = 4  # graphs of one adapter: each keeps its memory

Work = Callable[[Tensor], Any]


@dataclass
class Recording:
    """Work on images of one shape."""

    graph: torch.cuda.CUDAGraph
    images: Tensor  # what it reads
    result: Any  # what it writes, the same tensors each time
    addresses: list[int]
    buffers: list[Tensor]  # kept alive: it reads those, too, that the model replaces for images of another size
    done: Tensor  # how often the device has done the work
    launched: int = 0  # how often the host has asked for it

    def replay(self, x: Tensor) -> Any:
        """Do the work on the images x. The next replay overwrites the result."""
        self.images.copy_(x)
        self.launched += 1
        self.graph.replay()
        return self.result

    def done_since(self, launched: int) -> bool:
        """Ask the device whether it has done the work since: an interrupt may have come just before the launch."""
        self.launched = int(self.done)
        return self.launched > launched


class Graphs:
    """The recordings of one adapter."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.recordings: dict[Any, Recording] = {}
        self._times: dict[Any, int] = {}
        self._pool: Any = None

    def recording(
        self, name: str, work: Work, x: Tensor, state: State, *, after: str | None = None, reads_model_only: bool
    ) -> Recording | None:
        """Find the recording of some work on such images, or make it if they have come often enough.

        None means that the work is to be done by hand. Making one changes nothing on the device. Recordings share
        memory: one that was made earlier overwrites the results of a later one. So work is recorded only `after` the
        work whose results must last until it is done.
        """
        if not self.enabled or not x.is_cuda or not self._lists_all(state):
            return None
        # the caller's autocast is recorded too, and so is what a switch of the state decides
        context = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        switches = tuple(value for value in parts(state).values() if isinstance(value, (bool, str)))
        images = x.shape, x.dtype, context, switches
        key = name, *images
        recording, addresses = self.recordings.get(key), _addresses(state, reads_model_only)
        if recording is not None and recording.addresses != addresses:
            # all of them: they share memory, which is safe only while they are replayed in the order of recording
            self.recordings.clear()
            self._times.clear()
            self._pool = None  # a result in it may still be in use, and torch shares no pool that has lost its graphs
            recording = None
        if recording is None:
            self._times[key] = self._times.get(key, 0) + 1
            ready = after is None or (after, *images) in self.recordings
            if ready and self._times[key] > WARM and len(self.recordings) < MOST:
                recording = self._record(work, x, state, addresses)
                if recording is not None:
                    self.recordings[key] = recording
        return recording

    def _record(self, work: Work, x: Tensor, state: State, addresses: list[int]) -> Recording | None:
        host = HostSnapshot(state)
        graph, images, done = _graph_for(state), x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        buffers = list(state.model.buffers())
        stream = torch.cuda.current_stream()
        try:
            # thread_local: a data loader's thread may go on pinning memory meanwhile
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = work(images)
                done += 1
        except BaseException as error:
            torch.cuda.set_stream(stream)  # a recording that could not begin leaves its own behind
            # generators of a recording that broke off still wait for its end, torch's own too; one that ends frees them
            with contextlib.suppress(RuntimeError), torch.cuda.graph(_graph_for(state)):
                images.zero_()
            host.revert(state)  # recording runs no kernel, but it runs the method's Python
            if not isinstance(error, RuntimeError):
                raise
            self._give_up(str(error))
            return None
        return Recording(graph, images, result, addresses, buffers, done)

    def _lists_all(self, state: State) -> bool:
        """Whether every memory lists its tensors: one that does not might replace them unseen."""
        for name, value in parts(state).items():
            if hasattr(value, "restore") and not hasattr(value, "tensors") and not isinstance(value, Classifier):
                self._give_up(f"its state's {name} has no tensors(), which would list its tensors")
                return False
        return True

    def _give_up(self, why: str) -> None:
        self.enabled = False
        self.recordings.clear()
        warnings.warn(
            f"graph=True: this method or model cannot be recorded as a CUDA graph and runs without one: {why}",
            FallbackWarning,
            stacklevel=2,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"enabled": self.enabled}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(saved["enabled"])  # type: ignore[misc]


def _graph_for(state: State) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    for value in parts(state).values():
        if isinstance(value, torch.Generator):
            graph.register_generator_state(value)
    return graph


def _addresses(state: State, model_only: bool) -> list[int]:
    if model_only:
        return [t.data_ptr() for t in state.model.moving().values()]
    memories = [t for value in parts(state).values() if hasattr(value, "tensors") for t in value.tensors()]
    return [0 if t is None else t.data_ptr() for t in (*tensors(state), *memories)]
