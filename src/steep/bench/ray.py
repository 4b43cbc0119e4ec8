"""Send cells to a Ray cluster. Only this module imports ray, and only when it is asked to run.

The driver plans, claims, loads and stores; workers adapt. Every model and every set of images is put into Ray's
object store once, from where each node fetches it once, so nodes need steep installed but neither data nor weights.
A worker that is lost takes its cell with it; Ray starts the cell again elsewhere, up to `retries` times.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from steep import user_code
from steep.bench import cell as one
from steep.bench.local import POLL_SECONDS, Board, Outcome, Progress
from steep.bench.rows import Row
from steep.bench.sources import IMAGE_BYTES, Recent, Sources, model_key
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.core.method import Method, Need
from steep.data import ImageSet
from steep.data.streamed import streamed
from steep.errors import SteepError, install_extra
from steep.methods import METHODS

CONNECT_SECONDS = 5.0  # that an address may take to answer

_models = Recent[nn.Module](2)  # of a worker process: a model is unpacked once, not once per cell


class EngineError(SteepError, RuntimeError):
    """An engine that cannot start or has lost its workers."""


def run(
    cells: Sequence[Cell],
    store: Store,
    *,
    sources: Sources | None = None,
    address: str = "auto",
    cpus: float = 1.0,
    gpus: float = 0.0,
    retries: int = 3,
    progress: Progress | None = None,
) -> Outcome:
    """Run what is missing on a Ray cluster; rows come back here and go to the store, the same rows `local` makes.

    `sources` is where the driver, not the workers, finds models and images. `address` is `auto` for the cluster this
    machine belongs to, `local` to start one here, or `ray://HOST:PORT`. A cell takes so many cores (`cpus`) and GPUs;
    0.25 puts four cells on one. It is started again up to `retries` times when its worker is lost.
    """
    board = Board(cells, store, progress)
    if not board.left:
        return board.outcome
    with cluster(address) as ray:
        _Driver(ray, board, sources or Sources(), cpus, gpus, retries).run()
    return board.outcome


@contextlib.contextmanager
def cluster(address: str) -> Iterator[Any]:
    """Connect to a cluster, or start one; what was started here is stopped again."""
    try:
        # Inside steep.bench this module itself is called ray.
        ray = importlib.import_module("ray")
    except ImportError:
        raise EngineError(f"engine ray: ray is not installed. {install_extra('ray')}") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "configure_logging": False}
    if address == "local":
        options["include_dashboard"] = False
    else:
        _reach(address)
    started_here = not ray.is_initialized()
    try:
        if started_here:
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split())[:300]
        hint = "Start one (ray start --head), or use --address local"
        raise EngineError(f"engine ray: no cluster at {address!r}: {reason} {hint}") from error
    try:
        yield ray
    finally:
        if started_here:
            ray.shutdown()


def _reach(address: str) -> None:
    """Knock before ray does: it would try for half a minute, and abort the process in some versions."""
    place = address.removeprefix("ray://")
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        if address == "auto" or "://" in address:
            return
        raise EngineError(f"engine ray: address: expected auto, local, HOST:PORT or ray://HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"engine ray: nothing answers at {address}: {error}. Is the cluster up? To run on this machine alone: "
            "--address local"
        ) from error


class _Driver:
    """Keeps the cluster busy: loads what cells need, sends them, stores what comes back."""

    def __init__(self, ray: Any, board: Board, sources: Sources, cpus: float, gpus: float, retries: int) -> None:
        self.ray, self.board, self.sources = ray, board, sources
        self.gpus = gpus
        self.task = ray.remote(_work).options(num_cpus=cpus, num_gpus=gpus, max_retries=retries)
        slots = ray.cluster_resources()
        room = slots.get("CPU", 1.0) / cpus if cpus else slots.get("CPU", 1.0)
        if gpus:
            if slots.get("GPU", 0.0) < gpus:
                raise EngineError(f"engine ray: a cell wants {gpus} GPUs, the cluster has {slots.get('GPU', 0.0):g}")
            room = min(room, slots["GPU"] / gpus)
        self.window = max(2, 2 * int(room))  # cells in flight: enough to keep every worker fed
        self.flying: dict[Any, str] = {}  # reference → key
        self._images = Recent[tuple[int, Any]](IMAGE_BYTES, weigh=lambda put: put[0])  # (bytes, reference)
        self._models = Recent[Any](4)
        self._train_sets = Recent[Any](1)

    def run(self) -> None:
        """Send and collect until nothing is left."""
        try:
            while self.board.left:
                self.fill()
                if self.flying:
                    self.collect()
                else:
                    self.board.wait()
        except BaseException:
            for reference, key in self.flying.items():
                self.board.release(key)
                with contextlib.suppress(Exception):
                    self.ray.cancel(reference, force=True)
            raise

    def fill(self) -> None:
        """Send cells until the window is full."""
        cells = self.board.claims()
        while len(self.flying) < self.window and (claim := next(cells, None)):
            key, cell = claim
            with self.board.attempt(key):
                self.flying[self.send(cell)] = key

    def send(self, cell: Cell) -> Any:
        """Put what a cell needs where workers can fetch it, and queue the cell."""
        sets = [self.sources.images(cell, *pair) for pair in cell.shifts]
        references = [self._ship(data) for data in sets]
        kind = model_key(cell, sets[0])
        source, method, train = self.sources.model(cell, sets[0]), METHODS[cell.method], None
        for module in user_code.OPENED.values():  # workers cannot import these files: classes are sent as they are
            self.ray.cloudpickle.register_pickle_by_value(module)
        model = self._models.get(kind, lambda: self.ray.put(source))
        if Need.SOURCE_IMAGES in method.needs:
            train = self._train_sets.get((cell.data, cell.source, cell.size), lambda: self._train(cell))
        # References inside a list stay references: the worker fetches the model only where it has not got it yet.
        return self.task.remote(method, cell.to_json(), [model, kind], train, self.gpus > 0, *references)

    def _ship(self, data: ImageSet) -> Any:
        key = (data.digest, data.name, data.split, len(data))
        return self._images.get(key, lambda: (data.images.nbytes, self.ray.put(_plain(data))))[1]

    def _train(self, cell: Cell) -> Any:
        data = self.sources.train(cell)
        return None if data is None else self.ray.put(_plain(data))

    def collect(self) -> None:
        """Wait for a cell to end and store its row."""
        ready, _ = self.ray.wait(list(self.flying), num_returns=1, timeout=POLL_SECONDS)
        for reference in ready:
            key = self.flying.pop(reference)
            with self.board.attempt(key):
                try:
                    row: Row = self.ray.get(reference)
                except self.ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, Exception) else error from error
                self.board.keep(key, row)


def _plain(data: ImageSet) -> ImageSet:
    """Bring a set into memory as plain arrays: a map of a file means nothing on another machine."""
    images = data.images if streamed(data.images) else np.array(data.images)  # workers see the files
    return replace(data, images=images, labels=np.array(data.labels))


class _Sent(Sources):
    """Sources of a worker: what was sent with the cell."""

    def __init__(self, model: nn.Module, sets: Mapping[tuple[str, int], ImageSet], train: ImageSet | None) -> None:
        self._sent = model, sets, train

    def model(self, cell: Cell, images: ImageSet) -> nn.Module:
        return self._sent[0]

    def images(self, cell: Cell, shift: str, severity: int) -> ImageSet:
        return self._sent[1][shift, severity]

    def train(self, cell: Cell) -> ImageSet | None:
        return self._sent[2]


def _work(
    method: type[Method[Any]],
    spec: dict[str, Any],
    model: list[Any],
    train: ImageSet | None,
    gpu: bool,
    *sets: ImageSet,
) -> Row:
    """Run one cell on a worker, where a method from a file of the user's is not known yet."""
    ray = importlib.import_module("ray")
    METHODS[method.name] = method
    cell = Cell.from_json(spec)
    reference, kind = model
    source = _models.get(tuple(kind), lambda: ray.get(reference))
    sent = _Sent(source, dict(zip(cell.shifts, sets, strict=True)), train)
    return one.run(cell, sent, torch.device("cuda" if gpu else "cpu"))
