"""An argument that cannot be used is refused where it is given, by its name; none is taken for something else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import steep
from nets import images
from steep.core.constraints import Real, hyper
from steep.errors import InputError, UnknownNameError
from steep.methods.tent import Tent


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()


X = images(16, seed=1)


def refused(method: str = "tent", **values: Any) -> str:
    with pytest.raises(InputError) as error:
        steep.adapt(net(), method, **values)
    return str(error.value)


@pytest.mark.parametrize("value", [2.5, 2.0, "2", None, [1], float("nan"), True])
@pytest.mark.parametrize("name", ["steps", "seed"])
def test_what_is_no_whole_number(name: str, value: object) -> None:
    assert re.fullmatch(rf"{name}: expected a whole number .*, got {re.escape(repr(value))}", refused(**{name: value}))


@pytest.mark.parametrize("value", [np.array([1, 2]), torch.tensor([1, 2]), torch.tensor(1.5)])
def test_nor_is_an_array(value: object) -> None:
    assert refused(steps=value).startswith("steps: expected a whole number")


@pytest.mark.parametrize("method", ["tea", "tent"])  # one that draws, one that does not
@pytest.mark.parametrize("seed", [2**64, 2**70, -(2**63) - 1])
def test_a_seed_torch_cannot_begin_from(method: str, seed: int) -> None:
    assert re.fullmatch(rf"seed: expected .* {-(2**63)} to {2**64 - 1}, got {seed}", refused(method, seed=seed))


@pytest.mark.parametrize("seed", [-(2**63), -1, 2**64 - 1, np.uint64(2**64 - 1), torch.tensor(3)])
def test_a_seed_it_can(seed: Any) -> None:
    adapter = steep.adapt(net(), "tea", seed=seed, sgld_steps=1, buffer_size=32)
    assert type(adapter.seed) is int
    assert adapter.seed == int(seed)
    assert adapter(X).isfinite().all()


def test_whole_numbers_of_other_libraries() -> None:
    assert steep.adapt(net(), "tent", steps=np.int64(2)).options()["steps"] == 2
    assert steep.adapt(net(), "tent", steps=torch.tensor(3)).options()["steps"] == 3


@pytest.mark.parametrize("name", ["episodic", "deterministic", "compile", "graph", "recompute", "inplace"])
def test_no_is_not_taken_for_yes(name: str) -> None:
    for value in ("no", "false", None, 2, 0.0, torch.tensor([1, 0])):
        assert refused(**{name: value}) == f"{name}: expected True or False, got {value!r}"


def test_yes_and_no_of_other_libraries() -> None:
    assert steep.adapt(net(), "tent", episodic=np.True_, deterministic=0).options() == {
        **steep.adapt(net(), "tent").options(),
        "episodic": True,
    }


@pytest.mark.parametrize("method", ["pl", "shot", "tent", "eta", "eata", "sar", "tea"])
@pytest.mark.parametrize("value", [None, 5, nn.Linear, [["norm"]], ["norm", 3], b"norm"])
def test_params_that_name_none(method: str, value: object) -> None:
    message = refused(method, params=value)
    assert message.startswith(f'{method}: params: expected "norm", "all", layer kinds such as ["norm", "linear"]')
    assert message.endswith(f"got {value!r}")


@pytest.mark.parametrize("value", ["norm", ["norm"], ("norm",), {"norm"}, r"^1\."])
def test_params_that_name_some(value: Any) -> None:
    assert list(steep.adapt(net(), "tent", params=value)._state.model.adapted()) == ["1.weight", "1.bias"]


@pytest.mark.parametrize(
    ("method", "values", "expected"),
    [
        ("tent", {"lr": float("nan")}, "above 0"),
        ("tent", {"lr": float("inf")}, "above 0"),
        ("tent", {"lr": -0.1}, "above 0"),
        ("tent", {"statistics": "test"}, "'batch' or 'source'"),
        ("sar", {"momentum": -1.0}, "from 0 to 1"),
        ("sar", {"radius": -1}, "at least 0"),
        ("dua", {"momentum": 1.5}, "from 0 to 1"),
        ("dua", {"copies": 0}, "at least 1"),
        ("dua", {"images": -1}, "at least 0"),
        ("dua", {"shift": -0.1}, "from 0 to 1"),
        ("pl", {"threshold": 1.5}, "from 0 to 1"),
        ("shot", {"threshold": float("nan")}, "from 0 to 1"),
        ("eata", {"fisher_images": 0}, "at least 1"),
        ("tea", {"sgld_rate": -1.0}, "at least 0"),
        ("tea", {"sgld_noise": -0.01}, "at least 0"),
        ("tea", {"sgld_rate": float("nan")}, "finite"),
        ("tea", {"grad_clip": -1}, "above 0 or None"),
        ("tea", {"grad_clip": float("nan")}, "finite"),
        ("tea", {"start": None}, "two finite numbers"),
        ("tea", {"start": (0,)}, "two finite numbers"),
        ("tea", {"start": ("a", "b")}, "two finite numbers"),
        ("tea", {"start": (0, float("inf"))}, "two finite numbers"),
        ("tea", {"clamp": 5}, "two finite numbers"),
        ("tea", {"clamp": (0, 1, 2)}, "two finite numbers"),
    ],
)
def test_hyper_parameters_that_would_fail_at_every_step(method: str, values: dict[str, object], expected: str) -> None:
    ((name, value),) = values.items()
    message = refused(method, **values)
    assert message.startswith(f"{method}: {name}: expected ")
    assert expected in message
    assert message.endswith(f"got {value!r}")


def test_a_method_made_by_hand_is_checked_too() -> None:
    for values in ({"lr": "0.1"}, {"lr": None}, {"lr": True}, {"params": None}):
        with pytest.raises(InputError, match=f"tent: {next(iter(values))}: expected "):
            steep.METHODS["tent"](**values)
    made = steep.METHODS["tea"](lr=np.float32(0.5), clamp=[0, np.int64(1)], grad_clip=None, params={"norm", "conv"})
    assert (made.clamp, made.params) == ((0.0, 1.0), ("conv", "norm"))
    assert [type(value) for value in (made.lr, *made.clamp)] == [float, float, float]


def test_callbacks_are_a_list() -> None:
    for value in (print, None, 5, [5], "ab"):
        assert refused(callbacks=value) == (
            f"callbacks: expected a list of functions, got {value!r}. Give one as [function]"
        )
    seen: list[int] = []
    steep.adapt(net(), "tent", callbacks=(lambda adapter, logits: seen.append(len(logits)) for _ in range(2)))(X)
    assert seen == [16, 16]


@pytest.mark.parametrize("value", [5, lambda: [X]])
def test_source_images_come_in_batches(value: object) -> None:
    assert refused("eata", source=value).endswith("Give a list or a DataLoader")


def test_what_is_no_device() -> None:
    message = refused(device={})
    assert message.startswith("device: the model cannot be brought to {} (")
    assert "\n" not in message


@pytest.mark.parametrize("value", [3.5, b"cpu", torch.tensor(0), np.float32(0), ["cpu"]])
def test_torch_takes_some_of_these_for_no_device_at_all(value: Any) -> None:
    assert refused(device=value).endswith("(expected a device, its name or its number)")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["normm"], "'normm': did you mean 'norm'"),
        (["norm", "lienar"], "'lienar': did you mean 'linear'"),
        (("norm", "all"), "'all'.*Known: conv, embedding, linear, norm"),
        ({""}, "''"),
    ],
)
def test_kinds_of_layers_are_known_before_there_is_a_model(value: Any, words: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown layer kind in params {words}"):
        Tent(params=value)


@dataclass(frozen=True, kw_only=True)
class Free(Tent):
    """Has a hyper-parameter without a constraint."""

    name: ClassVar = "free"
    extra: Any = None


PLAIN = [
    (Fraction(1, 2), 0.5),
    ((np.float32(0.5), 2), (0.5, 2)),
    ([np.int64(3), [np.bool_(True), None]], [3, [True, None]]),
    ({"a": np.float64(0.25), "b": {"c": np.str_("d")}}, {"a": 0.25, "b": {"c": "d"}}),
]


@pytest.mark.parametrize(("value", "stored"), PLAIN)
def test_a_setting_without_a_constraint_becomes_plain_data(value: object, stored: object, tmp_path: Path) -> None:
    adapter = steep.adapt(net(), Free(extra=value))
    assert repr(adapter.method.extra) == repr(stored)
    adapter.save(tmp_path / "state")
    assert steep.resume(tmp_path / "state", net(), Free(extra=stored))(X).isfinite().all()


@pytest.mark.parametrize("value", [{1, 2}, 1j, b"x", np.zeros(2), torch.zeros(2), print, [(0, {1})], {"a": object()}])
def test_and_what_cannot_be_saved_is_refused_at_once(value: object) -> None:
    with pytest.raises(InputError, match=r"free: extra: expected None, yes or no, a number, a text, or lists, "):
        Free(extra=value)


def test_fields_of_a_method_of_ones_own_are_checked_where_they_declare_it() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Own(Tent):
        lr: float = 0.5  # another default: the constraint stays
        momentum: float | None = hyper(None, Real(least=0, most=1, optional=True))
        rates: tuple[float, ...] = (0.1,)
        made: int = field(init=False)

        def __post_init__(self) -> None:
            super().__post_init__()
            object.__setattr__(self, "made", 3)

    assert Own().made == 3
    assert steep.adapt(net(), Own())(X).isfinite().all()
    assert Own(rates="whatever").rates == "whatever"  # type: ignore[arg-type]
    assert type(Own(rates=np.float64(2)).rates) is float  # type: ignore[arg-type]
    for wrong in ({"momentum": 2.0}, {"momentum": "much"}, {"lr": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Own(**wrong)
