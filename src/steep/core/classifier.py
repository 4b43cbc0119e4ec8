"""The source model as a method sees it: a private copy that maps images to logits."""

from __future__ import annotations

import itertools
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from steep.core import layers
from steep.core.dist import group as distributed
from steep.core.io.feed import as_images, blank
from steep.core.losses import widen
from steep.core.run.precision import arrange, half_precision, lower
from steep.core.run.recompute import recomputed
from steep.errors import CheckpointError, FallbackWarning, InputError

FAR = 1e3  # images lie in [0, 1], normalised ones within a few units of it: beyond this nothing is an image
MOST_SHAPES = 8  # that one adapter compiles for
FLEETING = "~"  # begins the name of a buffer that the model itself does not save, or that a forward has made
MOST_PROGRAMS = 256  # that torch keeps of the forward pass, those of all adapters of the process counted together
T = TypeVar("T")


def copy_tensors(tree: T) -> T:
    """Copy every tensor in nested dicts and lists, bit for bit, with few kernels."""
    leaves, shape = pytree.tree_flatten(tree)
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            groups.setdefault((leaf.device, leaf.dtype), []).append(i)
    for members in groups.values():
        tensors = [leaves[i].detach() for i in members]
        fresh = [torch.empty_like(t) for t in tensors]
        torch._foreach_copy_(fresh, tensors)
        for i, tensor in zip(members, fresh, strict=True):
            leaves[i] = tensor
    result: T = pytree.tree_unflatten(leaves, shape)
    return result


class Classifier(nn.Module):
    """The private copy of the caller's model: images in, (B, K) logits out, whatever the model returns.

    It stays in eval mode, so dropout is off; only what a method asks for moves.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        net.requires_grad_(False)
        net.eval()  # by itself: a train() of the caller's own may return nothing
        _own_memory(net)
        self.net = net
        self.low: torch.dtype | None = None  # the half precision that it runs in
        self.layout = torch.preserve_format
        self.compile_forward = False
        self.recompute = False
        self.batches = 0  # answered so far
        self.since_reset = 0  # answered since the source model, as a method may count them
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._first_seen: dict[torch.Size, int] = {}  # in which batch
        # every buffer there is before the first forward, and whether it has a value
        self._declared = {path: buffer is not None for path, _, buffer in _buffers(net)}
        self._known_places: list[tuple[str, dict[str, Any], str]] | None = None
        self._tables: list[dict[str, Any]] = []  # of buffers, of each module
        self._counts: list[int] = []  # of the entries of each table

    def check_images(
        self, batch: Any, *, keep_bad: bool = False, leave_out_blank: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Refuse what is no batch of images, and bring the rest to the model's device, dtype and order of axes.

        The second value is None for a batch of good images. With `keep_bad`, one with bad images among them is returned
        with a mask of the good ones instead of being refused. With `leave_out_blank` blank ones are not among these.
        """
        like = self.anchor()
        plain = isinstance(batch, Tensor) and batch.dtype != torch.uint8
        x = batch if plain else as_images(batch, self.net, like.device)
        if not isinstance(x, Tensor):
            raise InputError(f"images: expected a tensor or array (B, C, H, W), got {type(x).__name__}")
        if x.is_meta or x.is_nested or x.layout != torch.strided:
            kind = "nested" if x.is_nested else f"{x.device} {x.layout}"
            raise InputError(f"images: expected a dense tensor with values, got a {kind} one")
        if x.ndim not in (4, 5):
            hint = " One image? Give it a batch of its own: x[None]. Grey ones? x[:, None]." if x.ndim == 3 else ""
            raise InputError(f"images: expected (B, C, H, W), got {tuple(x.shape)}.{hint}")
        if not x.is_floating_point() or x.dtype.itemsize == 1:  # torch has few operations on eight bits
            fix = "x.real" if x.is_complex() else "x.float()" if x.is_floating_point() else "x.float() / 255"
            raise InputError(f"images: expected floating point in [0, 1], got {x.dtype}. Convert first: {fix}.")
        if x.numel() == 0:
            raise InputError(f"images: expected at least one, got the shape {tuple(x.shape)}")
        x = x.detach()
        good = (x.abs() <= FAR).flatten(1).all(dim=1)  # false for NaN too; on the batch's own device, before it moves
        useful = good & ~blank(x) if leave_out_blank else good
        all_useful = bool(useful.all())
        x = x.to(like.device, like.dtype)
        if x.is_inference():
            x = x.clone()  # autograd cannot save a tensor that was made under inference_mode
        if all_useful:
            return x, None
        if not keep_bad and not bool(good.all()):
            raise InputError(
                f"images: expected finite values within ±{FAR:g}, got NaN, Inf or more in {int((~good).sum())} of "
                f"{len(x)} images. bad_images='nan' adapts on the others and answers NaN for these."
            )
        return x, useful.to(like.device)

    def forward(self, x: Tensor) -> Tensor:
        """Logits in float32 (float64 for a float64 model)."""
        if not len(x):  # a rank that has no image takes part in the others' statistics with one that counts nothing
            ramp = torch.linspace(0, 1, x.shape[1:].numel(), device=x.device, dtype=x.dtype).view(1, *x.shape[1:])
            with distributed.blank():
                return self.forward(torch.cat([x, ramp]))[:0]
        if x.ndim == 4:
            x = x.to(memory_format=self.layout)
        if self.recompute and torch.is_grad_enabled():
            with recomputed(self.net):
                return self._logits(x)
        if self.compile_forward and self._seen_before(x.shape):
            return self._logits_compiled(x)
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        x = x.clone()  # a model may write into its images, and steps to come, or the caller, look at them again
        if self.low is None:
            return widen(as_logits(self.net(x)))
        with torch.autocast(x.device.type, dtype=self.low):
            return widen(as_logits(self.net(x)))

    def _logits_compiled(self, x: Tensor) -> Tensor:
        if self._compiled is None:
            self._compiled = torch.compile(self._logits, dynamic=False)
        try:
            with torch._dynamo.config.patch(recompile_limit=MOST_PROGRAMS):
                return self._compiled(x)
        except (torch._dynamo.exc.TorchDynamoException, torch._inductor.exc.InductorError) as error:
            self.compile_forward = False
            warnings.warn(f"compile=True: this model runs uncompiled: {error}", FallbackWarning, stacklevel=3)
            return self._logits(x)

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        """Inside, the forward pass is not compiled: for work whose settings change from call to call."""
        compiled, self.compile_forward = self.compile_forward, False
        try:
            yield
        finally:
            self.compile_forward = compiled

    def _seen_before(self, shape: torch.Size) -> bool:
        """Whether a shape has come in an earlier batch.

        Each shape is compiled by itself: a program for every size takes 1.28 × the time (WRN-28-10, H200). The last,
        smaller batch of a stream comes once, so nothing is compiled for it.
        """
        if shape not in self._first_seen and len(self._first_seen) < MOST_SHAPES:
            self._first_seen[shape] = self.batches
        # fewer images than a full batch take other paths through the model, and little time
        return shape[0] >= layers.FULL_BATCH and self._first_seen.get(shape, self.batches) < self.batches

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside, no parameter asks for a gradient: images may, and their gradient is then cheaper."""
        adapted = list(self.adapted().values())
        for parameter in adapted:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in adapted:
                parameter.requires_grad_(True)

    def adapted(self) -> dict[str, nn.Parameter]:
        """The parameters that move, by the name they have in the caller's model."""
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad}

    def anchor(self) -> Tensor:
        """Any tensor of the model: its device is the model's, its dtype that of the images it takes."""
        like = like_images(self.net)
        return like if self.low is None else like.new_empty(0, dtype=torch.float32)

    def moving(self) -> dict[str, Tensor]:
        """What may move: adapted parameters and every buffer, by the name it has in the caller's model.

        One that the model does not save, or that a forward has made, begins with FLEETING: it may be a grid for the
        image size at hand, say, which is made anew, in another shape, when images of another size come.
        """
        # looked up anew: a forward may put another tensor in a buffer's place
        return {path: tensors[name] for path, tensors, name in self._places() if tensors[name] is not None}

    def slots(self) -> list[tuple[dict[str, Any], str, Tensor | None]]:
        """Which module's table has what may move, under which name, and the tensor that is there now."""
        return [(tensors, name, tensors[name]) for _, tensors, name in self._places()]

    def _places(self) -> list[tuple[str, dict[str, Any], str]]:
        # walking a large model takes longer than a small step of it
        if self._known_places is None or list(map(len, self._tables)) != self._counts:
            self._tables = [module._buffers for module in self.net.modules()]
            self._counts = list(map(len, self._tables))
            self._known_places = [
                (f"{path}.{name}" if path else name, module._parameters, name)
                for path, module in self.net.named_modules()
                for name, parameter in module._parameters.items()
                if parameter is not None and parameter.requires_grad
            ]
            for path, module, _ in _buffers(self.net):
                name = path.rpartition(".")[2]
                steady = self._declared.get(path) and name not in module._non_persistent_buffers_set
                self._known_places.append((path if steady else FLEETING + path, module._buffers, name))
            self._known_places.sort(key=lambda place: place[0].startswith(FLEETING))  # these may change shape: last
        return self._known_places

    def put_back(self, slots: list[tuple[dict[str, Any], str, Tensor | None]]) -> None:
        """Bring back the tensors of `slots()`, not their values; a buffer that was made since is gone again."""
        before = {(id(tensors), name) for tensors, name, _ in slots}
        for tensors, name, _ in self.slots():
            if (id(tensors), name) not in before:
                del tensors[name]
        for tensors, name, tensor in slots:
            tensors[name] = tensor  # a forward may have put another in its place

    def look_again(self) -> None:
        """Find anew what may move, after a choice of parameters."""
        self._known_places = None

    def forget_gradients(self) -> None:
        """Clear what a step that did not end well has left behind: the next one would add to it."""
        for parameter in self.net.parameters():
            parameter.grad = None

    def snapshot(self) -> dict[str, Tensor]:
        """Copy what may move. Frozen weights are not repeated."""
        return copy_tensors(self.moving())

    @torch.no_grad()
    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Bring back a snapshot, in place and bit for bit, without buffers that a forward has made since.

        Only a module that has remade one in another shape, for images of another size, keeps what it has made.
        """
        moving = self.moving()
        shapes, theirs = ({name: tuple(t.shape) for name, t in each.items()} for each in (moving, saved))
        apart = {name for name in shapes.keys() | theirs.keys() if shapes.get(name) != theirs.get(name)}
        if differ := sorted(name for name in apart if not name.startswith(FLEETING)):
            raise CheckpointError(f"adapter state of another model or setting: {differ[:8]} do not match")
        for name, tensor in moving.items():
            if name not in apart:
                tensor.copy_(saved[name])
        remade = {name.rpartition(".")[0] for name in apart if name in shapes and name in theirs}
        for path, tensors, name in self._places():
            declared = self._declared.get(path.removeprefix(FLEETING))
            if path in moving and path not in saved and not declared and path.rpartition(".")[0] not in remade:
                tensors[name] = None
                if declared is None:
                    del tensors[name]
        for path in saved:
            if path not in moving and path.rpartition(".")[0] not in remade:
                self._make(path.removeprefix(FLEETING), saved[path])

    def _make(self, path: str, values: Tensor) -> None:
        """Make a buffer as a forward of the saved model did; a name that means something else is left alone."""
        where, _, name = path.rpartition(".")
        module = dict(self.net.named_modules()).get(where)
        if module is not None and getattr(module, name, None) is None:
            values = values.to(self.anchor().device, copy=True)
            module.register_buffer(name, values, persistent=name not in module._non_persistent_buffers_set)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_compiled": None, "_known_places": None, "_tables": []}

    def fingerprint(self) -> str:
        """Tell source models apart: names, shapes and a checksum of all weights that do not move."""
        crc = 0
        for name, p in self.net.named_parameters():
            crc = zlib.crc32(f"{name}{tuple(p.shape)}".encode(), crc)
            if not p.requires_grad:
                rounded = p.detach().bfloat16().cpu().contiguous()  # so that every precision gives the same
                crc = zlib.crc32(rounded.flatten().view(torch.uint8).numpy().tobytes(), crc)
        return f"{crc:08x}"


def _buffers(net: nn.Module) -> Iterator[tuple[str, nn.Module, Tensor | None]]:
    """List every buffer with its path and its module, those without a value too."""
    for path, module in net.named_modules():
        for name, buffer in module._buffers.items():
            yield f"{path}.{name}" if path else name, module, buffer


def _own_memory(net: nn.Module) -> None:
    """Give every buffer as much memory as it has values: one made by `expand` cannot be written to."""
    for module in net.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.layout == torch.strided and 0 in buffer.stride() and buffer.numel() > 1:
                module._buffers[name] = buffer.clone(memory_format=torch.contiguous_format)


def like_images(net: nn.Module) -> Tensor:
    """Find a tensor of the dtype that a model takes images in: of a convolution or matrix, or any."""
    layers = (m for m in net.modules() if isinstance(m, (nn.modules.conv._ConvNd, nn.Linear)))
    weights = (p for layer in layers for p in layer.parameters())  # a parametrised `weight` would be computed
    tensors = itertools.chain(weights, net.parameters(), net.buffers())
    return next((t for t in tensors if t.is_floating_point()), torch.empty(0))


@dataclass(frozen=True)
class SourceModel:
    """What a method may know before the first test batch: the source model, a seed, maybe source images."""

    model: Classifier
    seed: int = 0
    precision: str = "float32"
    batches: Iterable[Any] | None = None  # source images (B, C, H, W), or (images, labels) pairs; labels unused

    def generator(self) -> torch.Generator:
        """Make the one random stream of this adapter, on the model's device."""
        return torch.Generator(self.model.anchor().device).manual_seed(self.seed)

    def prepare(self, params: layers.Params | None, statistics: str | layers.Mixing) -> Classifier:
        """Choose what adapts: parameters (None for none) and "batch", "source" or mixed statistics in BatchNorm."""
        mixing = statistics if isinstance(statistics, layers.Mixing) else None
        if mixing is None and statistics not in ("batch", "source"):
            raise InputError(f"statistics: expected 'batch' or 'source', got {statistics!r}")
        net = self.model.net
        low = half_precision(self.precision, self.model.anchor())
        if params is not None:
            layers.select(net, params)
        # from here on nothing is refused
        layers.use_source_statistics(net)
        if statistics != "source":
            layers.use_batch_statistics(net, mixing)
        self.model.low = low
        if self.model.low is not None:
            lower(net, self.model.low)
        self.model.layout = arrange(net, fast=self.model.low is not None or self.precision == "auto")
        self.model.look_again()
        return self.model


def as_logits(output: Any) -> Tensor:
    """Read (B, K) logits from a tensor, the first of a tuple, a dict's "logits" or an object's `.logits`."""
    logits = output
    if isinstance(logits, Mapping) and "logits" in logits:
        logits = logits["logits"]
    elif hasattr(logits, "logits"):
        logits = logits.logits
    elif isinstance(logits, (tuple, list)) and logits:
        logits = logits[0]
    if not isinstance(logits, Tensor):
        raise InputError(
            "model output: expected a Tensor, a tuple that starts with one, a dict with 'logits' or an object "
            f"with .logits, got {type(output).__name__}"
        )
    if not logits.is_floating_point() or logits.is_nested or logits.layout != torch.strided:
        kind = "a nested one" if logits.is_nested else f"a {logits.layout} one of {logits.dtype}"
        raise InputError(f"model output: expected a dense tensor of floating-point logits (B, K), got {kind}")
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(
            f"model output: expected logits (B, K) with K ≥ 2 classes, got {tuple(logits.shape)}. "
            "A model with one output has no class distribution to adapt: give it two logits."
        )
    return logits
