"""The methods, one paper per file, and `adapt`, which finds them by name.

>>> import steep
>>> steep.METHODS["tea"].paper
'Yuan et al., TEA: Test-time Energy Adaptation, 2024, arXiv:2311.14402'
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from steep.core.adapter import Adapter, Callback
from steep.core.dist.group import Distributed
from steep.core.io import arguments, saving
from steep.core.method import Method, Moment
from steep.core.settings import Behaviour, Execution
from steep.errors import InputError, SteepWarning, check_known
from steep.methods.registry import METHODS, find, is_baseline, look_of, register, register_installed, register_module

_FILES = (  # in the order in which they are listed
    *("source", "bn", "alpha_bn", "lame", "t3a", "dua", "pl", "shot", "tent", "eta", "eata", "rdumb", "sar", "deyo"),
    *("roid", "cmf", "cotta", "rotta", "memo", "energy", "aea", "tea", "tea_fast", "infuse", "auto"),
)
for _file in _FILES:
    register_module(importlib.import_module(f"steep.methods.{_file}"))
register_installed()

SOURCE = next(filter(is_baseline, METHODS))
"""The method that every other is compared with: the model as it was trained."""


def make(method: str | type[Method[Any]] | Method[Any], setting: str = "paper", **hyper: Any) -> Method[Any]:
    """Find a method by name and set its hyper-parameters; a misspelt one is answered with the near match.

    >>> make("sar", "tuned", lr=1e-3).margin_classes is None
    True
    """
    if isinstance(method, str):
        check_known("method", METHODS, method.lower())
        method = METHODS[method.lower()]
    if not (isinstance(method, Method) or (isinstance(method, type) and issubclass(method, Method))):
        raise InputError(f"method: expected a name or a Method, got {type(method).__name__}")
    if setting not in ("paper", "tuned"):
        raise InputError(f"setting: expected 'paper' or 'tuned', got {setting!r}")
    if setting == "tuned" and isinstance(method, Method):
        raise InputError(f"setting: a {type(method).__name__} made by hand has its own. Give {method.name!r} instead")
    if isinstance(method, type):
        method = method.tuned() if setting == "tuned" else method()
    check_known(f"hyper-parameter of {method.name}", [field.name for field in fields(method)], *hyper)
    return replace(method, **hyper)


def resume(
    path: str | os.PathLike[str],
    model: nn.Module,
    method: Method[Any] | None = None,
    *,
    device: torch.device | str | None = None,
    compile: bool = False,
    graph: bool = False,
    recompute: bool = False,
    inplace: bool = False,
    distributed: Distributed = False,
) -> Adapter:
    """Continue an adaptation that `adapter.save(path)` wrote, with identical results.

    `model` is the source model that was adapted: its weights are checked. A `method` of your own must be given again,
    and so must how to compute.

    >>> import tempfile, torch, steep
    >>> model, x = steep.models.build("wrn-10-1", 10), torch.rand(16, 3, 32, 32)
    >>> adapter = steep.adapt(model, "tent")
    >>> _ = adapter(x)
    >>> path = tempfile.mkdtemp() + "/tent.safetensors"
    >>> adapter.save(path)
    >>> torch.equal(steep.resume(path, model)(x), adapter(x))
    True
    """
    saved = saving.load(Path(path))
    options = saving.check_parts(saved, {field.name for field in fields(Behaviour)})
    if method is None:
        method = make(saved["method"], **saved["hyper"])
    with arguments.restored_if_refused(arguments.check_model(model)) if inplace else nullcontext():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteepWarning)  # eata's source images: what they taught is in the file
            execution = Execution(
                device=device,
                compile=compile,
                graph=graph,
                recompute=recompute,
                inplace=inplace,
                distributed=distributed,
            )
            adapter = Adapter(model, method, Behaviour(**options), execution)
        adapter.load_state_dict(saved)
    return adapter


def adapt(
    model: nn.Module,
    method: str | type[Method[Any]] | Method[Any] = "tea",
    *,
    setting: str = "paper",
    steps: int = 1,
    episodic: bool = False,
    predict: Moment | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    precision: str = "float32",
    guard: str = "recover",
    bad_images: str = "raise",
    deterministic: bool = False,
    views: str | None = None,
    compile: bool = False,
    graph: bool = False,
    recompute: bool = False,
    inplace: bool = False,
    distributed: Distributed = False,
    source: Iterable[Any] | None = None,
    callbacks: Iterable[Callback] = (),
    **hyper: Any,
) -> Adapter:
    """Wrap a trained classifier so that it adapts to the images it is asked about.

    Args:
        model: any module that maps images (B, C, H, W) to logits; it is copied and left untouched.
        method: a name in `steep.METHODS`, or a `Method` of your own.
        setting: "paper" for the hyper-parameters of TEA's comparison, "tuned" for those fair to the method.
        steps: adaptation steps on each batch.
        episodic: forget everything before each batch.
        predict: answer with the model "before" or "after" the update; None for the method's own choice.
        seed: of the one random stream that the method draws from.
        device: where to work; None for where the model is.
        precision: "float32", "bfloat16" (frozen weights and activations only), or "auto": the faster one here.
        guard: what to do about harm. "recover" undoes a step that is not finite or far too long, compares the method
            with the source model, answers as that one where it is the better, brings a lost model back, lets small
            batches wait until they are enough to learn from, and learns nothing from blank images. "skip" only undoes
            such steps, so the method is as published; "raise" undoes them and raises; "off" lets them happen.
        bad_images: a batch with NaN, Inf or values far out of range: "raise" refuses it, "nan" adapts on the good
            images and answers NaN for the others.
        deterministic: use only kernels that give the same bits every time, or refuse naming the one that cannot.
        views: answer by the mean over several views of each image: "mirror" takes the mirror image too, "shifts" also
            both shifted by a pixel, six views in all. Not for images that a mirror changes, such as digits.
        compile: run the model through `torch.compile`, each shape from its second batch on, which then takes long.
        graph: on a CUDA device, record a step as one graph and replay it; where that cannot be, warn and go on.
        recompute: keep few activations and compute them again for the gradient: less memory, more time.
        inplace: adapt the model given instead of a copy of it, for models of which two do not fit. It stays set up for
            adapting (its own statistics or the batch's, hooks, no gradients); `merged()` gives an ordinary one.
        distributed: True to adapt together with all other ranks of `torch.distributed`, or a process group: each gives
            its part of the batch, which may be empty, and gets the logits of its images; the parameters are one
            process's (docs/scaling.md). False, the default, adapts alone.
        source: batches of source images, for methods that use them (eata); in a group, the same on all ranks.
        callbacks: called as `callback(adapter, logits)` after each batch; reading `adapter.last` there waits for the
            device, `logits` need not.
        **hyper: hyper-parameters of the method, e.g. `lr=1e-4`.

    >>> import torch, steep
    >>> model = steep.models.build("wrn-10-1", 10)       # yours, trained
    >>> adapter = steep.adapt(model, "tea", sgld_steps=2)
    >>> for x in [torch.rand(64, 3, 32, 32)]:            # your unlabelled stream
    ...     logits = adapter(x)
    >>> logits.shape, adapter.last.used, adapter.last.skipped
    (torch.Size([64, 10]), 64, None)
    """
    behaviour = Behaviour(
        steps=steps,
        episodic=episodic,
        predict=predict,
        seed=seed,
        precision=precision,
        guard=guard,
        bad_images=bad_images,
        deterministic=deterministic,
        views=views,
    )
    execution = Execution(
        device=device,
        compile=compile,
        graph=graph,
        recompute=recompute,
        inplace=inplace,
        distributed=distributed,
    )
    return Adapter(model, make(method, setting, **hyper), behaviour, execution, source=source, callbacks=callbacks)


__all__ = ["METHODS", "SOURCE", "adapt", "find", "is_baseline", "look_of", "make", "register", "resume"]
