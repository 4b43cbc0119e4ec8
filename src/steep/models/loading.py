"""A classifier from anywhere: steep's own by name, timm, torchvision, Hugging Face, PyPI, or a function in your file.

Only `file.py:factory` runs code of the user's. Every other name only looks things up, and weights are read as tensors,
never as programs.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steep import user_code
from steep.errors import CheckpointError, InputError, check_known, optional, unknown
from steep.models import checkpoints
from steep.models.normalisation import InputSpec, Normalized, input_spec
from steep.models.packaged import PACKAGED
from steep.models.registry import MODELS, build

PRETRAINED = "pretrained"  # stands for the weights that a library, or a factory, brings with a model


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model ready for images in [0, 1], and what its weights say of the pictures it wants."""

    model: nn.Module
    classes: tuple[str, ...]  # empty: unknown
    channels: int
    size: int | None  # None: unknown
    crop: float | None = None  # None: unknown
    interpolation: str | None = None  # None: unknown


@dataclass(frozen=True)
class _Built:
    model: nn.Module
    wants: InputSpec = field(default_factory=InputSpec)  # what its library says of the pictures it was trained on
    classes: tuple[str, ...] = ()


def load_model(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    pretrained: bool = False,
    num_classes: int | None = None,
    classes: Sequence[str] = (),
    channels: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> LoadedModel:
    """Build a model, bring in its weights and put its input normalisation before it.

    Args:
        name: a name in `steep.models`, `timm:NAME`, `torchvision:NAME`, `hf:NAME`, `hf:FOLDER` as `save_pretrained`
            wrote it, `pypi:NAME` of packages in `steep.models.packaged`, or `file.py:factory`, a function that returns
            the model. This last one runs the code in that file.
        weights: a file of weights. The last layer has as many classes as it has there.
        pretrained: let timm, torchvision or Hugging Face download theirs.
        num_classes: number of logits, where neither `classes` nor the weights say it.
        classes: the names of the classes in order.
        channels: of the model's input, where its weights do not say it; 3 otherwise.
        mean: with `std`, one number per channel that the model wants its input normalised with. Where they are not
            given, timm's data configuration, torchvision's transforms or Hugging Face's image processor say it. A
            factory says it as timm does: `model.default_cfg = {"mean": …, "std": …, "input_size": (3, 224, 224)}`.
        std: see `mean`.
    """
    if (mean is None) != (std is None):
        raise InputError("mean and std: expected both or neither")
    stored = checkpoints.read(weights) if weights is not None else None
    tensors = stored.tensors if stored is not None else {}
    metadata = stored.metadata if stored is not None else {}
    classes = tuple(classes) or tuple(map(str, _json_list(metadata.get("classes"))))
    if num_classes and classes and num_classes != len(classes):
        raise InputError(f"num_classes: expected {len(classes)}, as there are class names, got {num_classes}")
    normalized = {"mean", "std"} <= tensors.keys()  # saved with its `Normalized`
    if normalized and mean is not None:
        raise InputError("mean and std: the weights carry their own normalisation; leave --mean and --std out")
    prefix = "model." if normalized else ""
    count = num_classes or len(classes) or _length(tensors.get(prefix + "fc.weight"), 0)
    channels = channels or _length(tensors.get(prefix + "conv1.weight"), 1) or 3
    built = _build(name, count, channels, pretrained, stored)
    model = built.model
    if stored is not None and is_outside(name):
        rows = _length(tensors.get(f"{prefix}{_head(model)[0]}.weight"), 0)
        model = with_head(model, rows) if rows else model
    if normalized:
        model = Normalized(model, tensors["mean"], tensors["std"])
    if stored is not None:
        checkpoints.copy_weights(stored, model)
    elif not classes:
        classes = built.classes
    if not normalized:
        mean, std = (mean, std) if mean is not None else (built.wants.mean, built.wants.std)
        model = model if mean is None or std is None else Normalized(model, mean, std)
    return LoadedModel(
        model=model.eval(),
        classes=classes,
        channels=channels,
        size=_side(metadata) or built.wants.size,
        crop=built.wants.crop,
        interpolation=built.wants.interpolation,
    )


def is_outside(name: str) -> bool:
    """Whether a model is none of steep's own."""
    return user_code.split(name) is not None or name.partition(":")[0] in _LIBRARIES


def short_name(name: str) -> str:
    """Name a model without the folder it lies in, as rows and weights do."""
    if (factory := user_code.split(name)) is not None:
        return f"{factory[0].name}:{factory[1]}"
    library, _, rest = name.partition(":")
    folder = Path(rest).expanduser()
    return f"hf:{folder.name}" if library == "hf" and folder.is_dir() else name


def count_classes(model: nn.Module) -> int | None:
    """Count the answers of a model's last linear layer; None where it has none."""
    head = _head(model)[1]
    return None if head is None else head.out_features


def with_head(model: nn.Module, num_classes: int) -> nn.Module:
    """Give a model a new last layer, freshly initialised, where it answers another number of classes."""
    name, head = _head(model)
    if head is None:
        raise InputError(f"model: {type(model).__name__} has no linear layer to replace for {num_classes} classes")
    if head.out_features == num_classes:
        return model
    model.set_submodule(name, nn.Linear(head.in_features, num_classes, bias=head.bias is not None))
    return model


def keep_outputs(model: nn.Module, outputs: Sequence[int], of: int) -> nn.Module:
    """Cut the last layer of a model of `of` classes down to some: the logits that a mask over all would leave."""
    name, head = _head(model)
    if head is None or head.out_features != of:
        raise InputError(f"model: expected a last linear layer of {of:,} classes, got {head}")
    kept = nn.Linear(head.in_features, len(outputs), bias=head.bias is not None).to(head.weight)
    kept.load_state_dict({key: values[list(outputs)] for key, values in head.state_dict().items()})
    if not name:
        return kept
    model.set_submodule(name, kept)
    return model


def _head(model: nn.Module) -> tuple[str, nn.Linear | None]:
    """Find the last linear layer, by which classifiers answer."""
    heads = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    return heads[-1] if heads else ("", None)


def _build(name: str, count: int, channels: int, pretrained: bool, stored: checkpoints.Checkpoint | None) -> _Built:
    """Make the module a name stands for; `count` is 0 where the number of classes is unknown."""
    if (file := user_code.split(name)) is not None:
        model = _from_file(*file, count)
        says = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
        return _Built(model, InputSpec() if says is None else input_spec(says))
    library, _, rest = name.partition(":")
    if library not in _LIBRARIES or not rest:
        return _Built(_from_steep(name, count, channels, stored))
    # a folder and a package bring their weights
    pretrained = pretrained or library == "pypi" or (library == "hf" and Path(rest).expanduser().is_dir())
    if not pretrained and stored is None:
        fix = "Give --weights FILE, or --pretrained to download them"
        fix += ", or a folder that save_pretrained wrote (there is none of this name)" if library == "hf" else ""
        raise InputError(f"model {name}: expected weights. {fix}")
    try:
        return user_code.attempt(
            f"model {name}", lambda: _LIBRARIES[library](rest, count, pretrained and stored is None)
        )
    except InputError as error:
        if "torchvision::" not in str(error):
            raise
        fix = "Install it from where torch came from" + (", or: pip uninstall torchvision" if library == "hf" else "")
        raise InputError(f"{error}. The torchvision here is of another build than torch. {fix}") from error


def _from_steep(name: str, count: int, channels: int, stored: checkpoints.Checkpoint | None) -> nn.Module:
    if name not in MODELS and not name.startswith("wrn-"):
        if Path(name).expanduser().is_dir():
            raise InputError(f"model {name}: a folder. If save_pretrained wrote it, it is called hf:{name}")
        others = (*(f"{library}:NAME" for library in _LIBRARIES), "file.py:factory", "wrn-DEPTH-WIDTH")
        raise unknown("model", name, [*MODELS, *others])
    if stored is None:
        raise InputError(f"model {name}: expected weights, got none: its answers would be noise. Give --weights FILE")
    if not count:
        raise CheckpointError(f"weights: no fc.weight in them, so they are not of a {name}")
    weights = {key: tensor for key, tensor in stored.tensors.items() if key not in ("mean", "std")}
    with torch.device("meta"):  # compared without memory first: sizes that a file names may be anything
        checkpoints.check(replace(stored, tensors=weights), build(name, count, in_channels=channels))
    return build(name, count, in_channels=channels)


def _from_file(path: Path, factory: str, count: int) -> nn.Module:
    """Run the user's file and call the function in it, with num_classes where it takes and we know them."""
    where = f"model {path}:{factory}"
    with user_code.opened(path, where) as module:
        make = user_code.pick(module, factory, "factory")
        takes_count = "num_classes" in inspect.signature(make).parameters
        model = user_code.attempt(where, lambda: make(num_classes=count) if takes_count and count else make())
    if not isinstance(model, nn.Module):
        raise InputError(f"{where}: expected it to return a torch.nn.Module, got {type(model).__name__}")
    return model


def _timm(name: str, count: int, pretrained: bool) -> _Built:
    timm = optional("timm", "hub")
    model = timm.create_model(name, pretrained=pretrained, **({"num_classes": count} if count else {}))
    names = (getattr(model, "pretrained_cfg", None) or {}).get("label_names")
    if names is None and (subset := timm.data.infer_imagenet_subset(model)):  # told by the number of classes
        names = timm.data.ImageNetInfo(subset).label_descriptions()
    return _Built(model, input_spec(model), tuple(names or ()) if pretrained and count in (0, len(names or ())) else ())


def _torchvision(name: str, count: int, pretrained: bool) -> _Built:
    zoo = optional("torchvision", "hub").models
    default = zoo.get_model_weights(name).DEFAULT
    classes = tuple(default.meta["categories"])
    if pretrained and count not in (0, len(classes)):
        raise InputError(f"num_classes: the pretrained {name} has {len(classes)}, got {count}")
    options = {} if pretrained or not count else {"num_classes": count}
    model = zoo.get_model(name, weights=default if pretrained else None, **options)
    return _Built(model, input_spec(default), classes)


def _huggingface(name: str, count: int, pretrained: bool) -> _Built:
    hub = optional("transformers", "hf")
    name = str(Path(name).expanduser()) if Path(name).expanduser().is_dir() else name
    # False: a model that brings code of its own is refused, instead of a prompt that offers to run it
    config = hub.AutoConfig.from_pretrained(name, trust_remote_code=False, **({"num_labels": count} if count else {}))
    auto = hub.AutoModelForImageClassification
    if pretrained:
        with _without_bars(hub.utils.logging) if Path(name).is_dir() else nullcontext():
            model = auto.from_pretrained(name, config=config, trust_remote_code=False)
    else:
        model = auto.from_config(config, trust_remote_code=False)
    try:  # the file alone: the class that it names may need libraries of its own
        wants = input_spec(hub.ImageProcessingMixin.get_image_processor_dict(name)[0])
    except OSError:  # published without one
        wants = InputSpec()
    if wants.size is None and isinstance(side := getattr(config, "image_size", None), int):
        wants = replace(wants, size=side)
    classes = tuple(str(config.id2label[i]) for i in range(config.num_labels))
    return _Built(model, wants, () if classes[0] == "LABEL_0" else classes)


@contextmanager
def _without_bars(bars: Any) -> Iterator[None]:
    """Show no progress where nothing is downloaded: reading a folder takes no time worth a line."""
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _packaged(name: str, count: int, pretrained: bool) -> _Built:
    check_known("model in packages", PACKAGED, name)
    packaged = PACKAGED[name]
    model = packaged.build(name)
    if pretrained:
        checkpoints.load(model, packaged.weights())
    return _Built(with_head(model, count) if count else model, packaged.wants)


_LIBRARIES: Mapping[str, Callable[[str, int, bool], _Built]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "hf": _huggingface,
    "pypi": _packaged,
}


def _length(tensor: Tensor | None, dimension: int) -> int:
    """Read a size off a tensor that the file really holds: an empty or repeated one may claim any size."""
    if tensor is None or tensor.ndim <= dimension or not 0 < tensor.nbytes <= tensor.untyped_storage().nbytes():
        return 0
    return tensor.shape[dimension]


def _side(metadata: Mapping[str, str]) -> int | None:
    """Read the side of square training pictures off the metadata; None where it says nothing that makes sense."""
    shape = _json_list(metadata.get("image_shape"))
    square = len(shape) == 3 and shape[0] == shape[1] and type(shape[0]) is int and shape[0] > 0
    return shape[0] if square else None


def _json_list(text: str | None) -> list[Any]:
    try:
        value = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []
