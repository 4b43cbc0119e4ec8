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
from steep.core.method import Method, State
from steep.core.run.snapshot import HostSnapshot, tensors
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
    buffers: list[Tensor]  # kept: it reads those, too, that the model replaces when images of another size come


class Graphs:
    """The recordings of one adapter; without `enabled`, or off a GPU, work is simply done."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.recordings: dict[Any, Recording] = {}
        self._times: dict[Any, int] = {}
        self._pool: Any = None

    def run(self, name: str, method: Method[Any], state: State, work: Work, x: Tensor) -> Any:
        """Do the work on the images x, or repeat it. Tensors of the result are overwritten by the next call."""
        if not (self.enabled and x.is_cuda and method.repeats(state)):
            return work(x)
        if not self._shows_all(state):
            return work(x)
        # the caller's autocast is recorded too
        autocast = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        key = name, x.shape, x.dtype, autocast
        known = self.recordings.get(key)
        # a plain prediction reads the model alone: what else a step has put aside for it may be somewhere else now
        plain = name == "predict" and type(method).predict is Method.predict
        if known is not None and known.addresses != _addresses(state, plain):
            # all of them: they share memory, which is safe only while they are replayed in the order of recording
            self.recordings.clear()
            self._times.clear()
            self._pool = (
                None  # somebody may still hold a result in it, and torch shares no pool that has lost its graphs
            )
            known = None
        if known is None:
            self._times[key] = self._times.get(key, 0) + 1
            if self._times[key] <= WARM or len(self.recordings) >= MOST:
                return work(x)
            known = self._record(key, work, x, state, plain)
            if known is None:
                return work(x)
        known.images.copy_(x)
        known.graph.replay()
        return known.result

    def _record(self, key: Any, work: Work, x: Tensor, state: State, plain: bool) -> Recording | None:
        host = HostSnapshot(state)
        graph = _graph_for(state)
        images = x.clone()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        addresses, buffers = _addresses(state, plain), list(state.model.buffers())
        stream = torch.cuda.current_stream()
        try:
            # thread_local: a data loader's thread may go on pinning memory meanwhile
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = work(images)
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # a recording that could not begin leaves its own behind
            for value in state.parts().values():
                if hasattr(value, "mark"):
                    value.mark()  # what was to be put back was never computed: there is nothing to put back
            # generators of a recording that broke off still wait for its end, torch's own too; one that ends frees them
            with contextlib.suppress(RuntimeError), torch.cuda.graph(_graph_for(state)):
                images.zero_()
            host.revert(state)  # recording runs no kernel, but it runs the method's Python
            self._give_up(str(error))
            return None
        self.recordings[key] = Recording(graph, images, result, addresses, buffers)
        return self.recordings[key]

    def _shows_all(self, state: State) -> bool:
        """Whether every memory shows its tensors: one that does not might replace them unseen."""
        for name, value in state.parts().items():
            if hasattr(value, "restore") and not hasattr(value, "tensors") and not isinstance(value, Classifier):
                self._give_up(f"its state's {name} has no tensors(), which would show its tensors")
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
    for value in state.parts().values():
        if isinstance(value, torch.Generator):
            graph.register_generator_state(value)
    return graph


def _addresses(state: State, model_alone: bool) -> list[int]:
    if model_alone:
        return [t.data_ptr() for t in state.model.moving().values()]
    held = [t for value in state.parts().values() if hasattr(value, "tensors") for t in value.tensors()]
    return [0 if t is None else t.data_ptr() for t in (*tensors(state), *held)]
