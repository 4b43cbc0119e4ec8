"""Every packaged bench recipe resolves; slips are answered with what would have worked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from steep import recipes
from steep.bench import estimate
from steep.bench.recipe import plan
from steep.corruptions import BENCHMARK
from steep.data.known import KNOWN
from steep.errors import CheckpointError, InputError, UnknownNameError
from steep.methods import METHODS
from steep.models import checkpoints
from steep.models.loading import PRETRAINED, is_outside

COUNTS = {
    "appendix-cifar10": 345,  # 15 × (10 methods + 4 tuned + 4 more seeds of tea + 5 of tea-fast)
    "appendix-cifar100": 345,
    "appendix-tiny-imagenet": 345,
    "batch-size-1": 225,
    "clean-cifar10": 15,
    "clean-cifar100": 15,
    "clean-tiny-imagenet": 15,
    "continual": 15,
    "demo": 36,
    "digits": 102,
    "digits-batch-size-1": 14,
    "digits-continual": 7,
    "digits-gradual": 7,
    "digits-label-shift": 14,
    "digits-mixed": 7,
    "gradual": 15,
    "imagenet-c-lite0": 775,  # (15 × 2 + clean) × 25 methods
    "imagenet-c-resnet50": 270,  # 15 × 18 methods
    "imagenet-c-vit": 210,  # 15 × 14 methods
    "label-shift": 225,
    "leaderboard": 555,  # 15 × (31 lines + 6 tuned)
    "leaderboard-cifar100": 555,
    "mixed": 15,
    "office-caltech-lite0": 300,  # 12 pairs × 25 methods
    "pacs-128": 132,  # 12 pairs × 11 methods
    "pacs-lite0": 300,
    "table-1-cifar10": 1140,  # (15 × 5 + clean) × 15
    "table-1-cifar100": 1140,
    "table-1-tiny-imagenet": 1140,
    "table-2-cifar10": 975,
    "table-2-cifar100": 975,
    "table-2-tiny-imagenet": 975,
    "table-3-pacs": 120,  # 12 pairs × (8 methods + 2 tuned)
}


def test_the_recipes_are_these() -> None:
    assert {name for name in recipes.names("bench") if not name.startswith("analyze-")} == set(COUNTS)
    assert len(COUNTS) == 33


@pytest.mark.parametrize("name", COUNTS)
def test_every_recipe_resolves_to_its_cells(name: str) -> None:
    grid = plan(name, require=False)
    assert len(grid.cells) == COUNTS[name]
    assert len({cell.key() for cell in grid.cells}) == COUNTS[name]
    assert grid.about
    assert all(estimate.work(cell) > 0 for cell in grid.cells)
    for cell in grid.cells:
        if cell.weights == PRETRAINED:  # nobody trains those
            assert is_outside(cell.model)
            continue
        train = recipes.read(grid.train[cell.weights])  # the recipe that makes these weights exists and fits
        assert train["kind"] == "train"
        assert train["model"] == cell.model
        assert train["data"] == cell.data.removesuffix("-c")
        assert train.get("size") == cell.size
        assert train.get("domain", "") == cell.source
        assert grid.train[cell.weights] == f"train-{cell.weights}"


def test_every_value_of_a_recipe_has_its_source_beside_it() -> None:
    for name in recipes.names("bench"):
        text = (Path(recipes.__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
        for line in text.splitlines():
            value = line.partition("=")[2].strip()
            if (
                value
                and not line.startswith(("#", "kind", "group", "about"))
                and value != "{}"
                and "method =" not in line
            ):
                assert "#" in line, f"{name}: {line}"


def test_recipes_carry_the_papers_hyper_parameters() -> None:
    table = recipes.paper()["hyper"]
    for name in recipes.names("bench"):
        if not name.startswith(("table", "appendix", "clean")):
            continue
        for cell in plan(name, only=["method=tea"], require=False).cells:
            printed = table[cell.data][cell.source] if cell.source else table[cell.data]
            hyper = dict(cell.hyper)
            assert {k: hyper[k] for k in ("lr", "sgld_steps", "sgld_rate", "sgld_noise")} == {
                k: printed[k] for k in ("lr", "sgld_steps", "sgld_rate", "sgld_noise")
            }
            assert cell.steps == printed["steps"]
            assert (cell.batch_size or "full") == printed["batch_size"]


def test_what_the_command_sets_wins_over_a_source_domain() -> None:
    steps = {cell.steps for cell in plan("table-3-pacs", only=["method=tent"], require=False).cells}
    assert steps == {10, 20}
    planned = plan("table-3-pacs", only=["method=tent"], sets=["steps=2", "batch_size=64"], require=False).cells
    assert {(cell.steps, cell.batch_size) for cell in planned} == {(2, 64)}


def test_what_the_command_sets_wins_over_a_methods_own_table() -> None:
    grid = plan("appendix-cifar10", only=["method=tea,tent", "setting=paper"], sets=["seeds=[0]"], require=False)
    assert {(cell.label, cell.seed) for cell in grid.cells} == {("tea", 0), ("tent", 0)}


def test_a_method_may_do_without_the_views_of_its_recipe(tmp_path: Path) -> None:
    lines = 'tent = { views = "none" }\nbn = {}'
    cells = plan(mine(tmp_path, data='data = "digits-c"\nviews = "mirror"', tent=lines), require=False).cells
    assert {(cell.method, cell.views) for cell in cells} == {("tent", None), ("bn", "mirror")}
    plain = plan(mine(tmp_path, tent="tent = {}"), require=False).cells
    assert {cell.key() for cell in cells if cell.method == "tent"} == {cell.key() for cell in plain}  # the same rows
    with pytest.raises(InputError, match="views: expected one of 'none', 'mirror', 'shifts', got 'no'"):
        plan(mine(tmp_path, tent='tent = { views = "no" }'), require=False)


def test_what_makes_a_variant_is_not_undone_by_the_command() -> None:
    grid = plan("analyze-sensitivity", only=["method=batch-16,lr-0.01"], sets=["batch_size=64"], require=False)
    assert {(cell.label, cell.batch_size) for cell in grid.cells} == {("batch-16", 16), ("lr-0.01", 64)}


def test_pacs_is_twelve_pairs_with_the_weights_of_each_source() -> None:
    grid = plan("table-3-pacs", only=["method=tent"], require=False)
    assert len({(cell.source, cell.shift) for cell in grid.cells}) == 12
    assert all(cell.source != cell.shift for cell in grid.cells)
    assert {cell.weights for cell in grid.cells} == {f"pacs-{name}-resnet-18-bn" for name in KNOWN["pacs"].parts}
    sketch = next(cell for cell in grid.cells if cell.source == "sketch")
    assert (sketch.steps, dict(sketch.hyper)["lr"], sketch.batch_size, sketch.size) == (20, 0.002, 0, 32)


def test_table_1_is_eleven_methods_on_fifteen_corruptions_at_five_severities_and_clean() -> None:
    grid = plan("table-1-cifar10", only=["setting=paper"], require=False)
    methods = {cell.method for cell in grid.cells}
    assert methods <= set(METHODS)
    assert len(methods) == 11  # the paper's ten and tea-fast
    assert Counter(cell.shift for cell in grid.cells) == {**dict.fromkeys(BENCHMARK, 55), "clean": 11}
    assert [cell.method for cell in grid.cells[:2]] == ["source", "bn"]  # the source model first on every set


def test_tuned_is_there_where_it_differs_and_keeps_what_it_is_about() -> None:
    grid = plan("appendix-tiny-imagenet", only=["setting=tuned", "shift=fog"], require=False)
    hyper = {cell.method: dict(cell.hyper) for cell in grid.cells}
    assert sorted(hyper) == ["eata", "eta", "pl", "sar"]
    assert hyper["eta"]["lr"] == 1e-4  # the set's rate, which tuned says nothing about
    assert hyper["pl"]["lr"] == 1e-3  # tuned's own, not the recipe's 5e-5 for the paper's setting
    planned = plan("appendix-tiny-imagenet", only=["setting=tuned", "method=pl"], sets=["pl.lr=0.5"], require=False)
    assert dict(planned.cells[0].hyper)["lr"] == 0.5


def test_options_choose_and_set() -> None:
    grid = plan(
        "digits",
        sets=["tea.lr=1e-4", "batch_size=64", "tea.start=[0, 1]", "tea.chains=16", "weights=untrained", "sar.lr=1"],
        only=["method=tea,sar", "shift=fog", "setting=paper"],
        seeds="0..2",
        limit=9,
    )
    assert [(cell.method, cell.seed) for cell in grid.cells] == [(m, s) for m in ("sar", "tea") for s in (0, 1, 2)]
    tea = dict(grid.cells[-1].hyper)
    assert (tea["lr"], tea["start"], tea["chains"]) == (1e-4, (0, 1), 16)
    assert dict(grid.cells[0].hyper)["lr"] == 1.0
    assert {(cell.batch_size, cell.limit) for cell in grid.cells} == {(64, 9)}
    assert plan("digits", sets=["tea.lr=0.001"], require=False).cells == plan("digits", require=False).cells


def test_only_chooses_shifts_inside_a_sequence() -> None:
    (cell,) = plan("continual", only=["method=tea", "shift=fog,snow"], require=False).cells
    assert cell.sequence == (("snow", 5), ("fog", 5))


MINE = """
kind = "bench"
data = "digits-c"
model = "wrn-10-1"
weights = "untrained"
shifts = ["fog"]
[methods]
tent = {}
"""


def mine(folder: Path, **changes: str) -> str:
    text = MINE
    for old, new in changes.items():
        text = text.replace({"data": 'data = "digits-c"', "tent": "tent = {}", "shifts": 'shifts = ["fog"]'}[old], new)
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return str(folder / "mine.toml")


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    grid = plan(mine(tmp_path))
    assert (grid.name, len(grid.cells), grid.cells[0].severity, grid.cells[0].predict) == ("mine", 1, 5, "before")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": 'data = "digits-c"\nbatchsize = 3'},
            r"unknown key of recipe mine 'batchsize': did you mean 'batch_size'",
        ),
        ({"data": 'data = "digits-c"\nsteps = "two"'}, "steps: expected a whole number"),
        ({"data": 'data = "digits-c"\nsteps = 0'}, "steps: expected a whole number"),
        ({"data": 'data = "digits-c"\nbatch_size = "all"'}, r"batch_size: expected a whole number"),
        ({"data": 'data = "digits-c"\npredict = "later"'}, r"predict: expected 'before' or 'after'"),
        ({"data": 'data = "digits-c"\nguard = "on"'}, "guard: expected"),
        ({"data": 'data = "digits-c"\nprotocol = "restart"'}, "protocol: expected one of 'reset', 'continual', "),
        ({"data": 'data = "digits-c"\nprecision = "fp8"'}, "precision: expected"),
        ({"data": 'data = "digits-c"\nseverities = [6]'}, "severities: expected"),
        ({"data": 'data = "digits-c"\nseeds = "a..b"'}, r"seeds: expected such as 0..4"),
        ({"data": 'data = "digits-c"\nseeds = "0..999999999"'}, "seeds: expected .* at most 10,000"),
        ({"data": 'data = "digits-c"\nseeds = [1e400]'}, "seeds: expected"),
        ({"tent": "tent = {}\n[sources.photo]\n"}, r"digits.* has no domains"),
        ({"data": 'data = "digit-c"'}, r"unknown data of recipe mine 'digit-c': did you mean 'digits-c'"),
        ({"data": 'data = "digits"'}, r"unknown shift of recipe mine 'fog'\. Known: clean"),
        ({"shifts": 'shifts = ["foggy"]'}, r"unknown shift of recipe mine 'foggy': did you mean 'fog'"),
        ({"tent": "tant = {}"}, "did you mean 'tent'"),
        ({"tent": "tent = { lrr = 1 }"}, r"unknown hyper-parameter of tent 'lrr': did you mean 'lr'"),
        ({"tent": 'tent = { lr = "fast" }'}, "tent: lr: expected"),
        ({"tent": "tent = 3"}, r"expected a table such as \{\}, got 3"),
        ({"shifts": 'shifts = [["fog"]]'}, "shifts: expected a list"),
        ({"data": 'data = "digits-c"\nseverities = [5.0]'}, "severities: expected"),
        ({"data": 'data = "digits-c"\nseverities = [true]'}, "severities: expected"),
        ({"data": 'data = "digits-c"\nsettings = [["paper"]]'}, "settings: expected a list"),
        ({"data": 'data = "digits-c"\nseeds = [1.5]'}, r"seeds: expected such as 0..4"),
        ({"data": 'data = "digits-c"\nlimit = 0'}, "limit: expected a whole number"),
        ({"data": 'data = "digits-c"\nsize = -3'}, "size: expected a whole number"),
        ({"data": 'data = "digits-c"\nprotocol = "label-shift"\ndelta = 0'}, "delta: expected a finite number above 0"),
        (
            {"data": 'data = "pacs"', "tent": "tent = {}\n[sources]\nphoto = 3\n"},
            "sources.photo: expected a table",
        ),
        ({"tent": "tent = { lr = nan }"}, "lr: expected a finite number"),
        ({"tent": 'tent = { settings = ["best"] }'}, "settings: expected .*'paper' or 'tuned'"),
    ],
)
def test_slips_in_a_recipe(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        plan(mine(tmp_path, **changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": ["tea"]}, r"--set: expected NAME=VALUE"),
        ({"sets": ["tae.lr=1"]}, r"unknown method to set 'tae': did you mean 'tea'"),
        ({"sets": ["batch=1"]}, r"unknown key of --set 'batch': did you mean 'batch_size'"),
        ({"sets": ["tea.lr=nan"]}, "lr: expected a finite number"),
        ({"sets": ["tea.lr=inf"]}, "lr: expected a finite number"),
        ({"sets": ["model=wrn-40-22x"]}, r"unknown model 'wrn-40-22x': did you mean 'wrn-40-2'"),
        ({"sets": ["limit=0"]}, "limit: expected a whole number"),
        ({"only": ["fog"]}, r"--only: expected such as method=tea,tent"),
        ({"only": ["shit=fog"]}, r"unknown thing to choose by in --only 'shit': did you mean 'shift'"),
        ({"only": ["method=tae"]}, r"unknown method in --only 'tae': did you mean 'tea'"),
        ({"only": ["shift=foggy"]}, r"unknown shift in --only 'foggy': did you mean 'fog'"),
        ({"only": ["method=tent", "setting=tuned"]}, r"the grid is empty"),
        ({"seeds": "x"}, r"seeds: expected such as 0..4"),
    ],
)
def test_slips_on_the_command_line(options: dict[str, object], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        plan("digits", require=False, **options)  # type: ignore[arg-type]


def test_other_kinds_and_missing_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected kind = 'bench', got 'train'. Run: steep train train-digits"):
        plan("train-digits")
    (tmp_path / "short.toml").write_text('kind = "bench"\ndata = "digits-c"\n', encoding="utf-8")
    with pytest.raises(InputError, match="recipe short: expected the key 'model'"):
        plan(str(tmp_path / "short.toml"))
    with pytest.raises(UnknownNameError, match="did you mean 'digits'"):
        plan("digit")
    (tmp_path / "other.toml").write_bytes(b"\xff\xfe kind")
    with pytest.raises(InputError, match=r"other.toml: expected a text file in UTF-8"):
        plan(str(tmp_path / "other.toml"))


def test_weights_are_found_by_name_and_missing_ones_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import steep

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEEP_WEIGHTS", raising=False)
    with pytest.raises(CheckpointError, match=r"no digits.safetensors in .*steep train train-digits.*--weights FILE"):
        plan("digits", root=tmp_path)
    with pytest.raises(CheckpointError, match="no such file"):
        plan("digits", weights=tmp_path / "none.safetensors")
    (tmp_path / "weights").mkdir()
    model = steep.models.build("wrn-10-1", 10, in_channels=1)
    file = checkpoints.save(model, tmp_path / "weights" / "digits.safetensors")
    by_root, by_file, by_folder = (
        plan("digits", root=tmp_path),
        plan("digits", weights=file),
        plan("digits", weights=tmp_path / "weights"),
    )
    assert by_root.cells == by_file.cells == by_folder.cells
    assert len(by_root.cells[0].weights_sha256) == 64
    assert by_root.present == {"digits": file}


def test_an_estimate_takes_the_cells_batches_and_the_least_of_several_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy now and then must not make a grid look longer than it is."""
    sizes: list[int] = []
    clock = iter([0, 9, 9, 9.016, 20, 20.4, 30, 30.1, 40, 49, 50, 50.3])  # begin and end of each pass

    def model(x: Tensor) -> None:
        sizes.append(len(x))

    class Net(torch.nn.Identity):
        forward = staticmethod(model)

    monkeypatch.setattr(estimate, "build", lambda *_, **__: Net())
    monkeypatch.setattr(estimate, "now", lambda device: next(clock))
    (cell,) = plan("digits", only=["method=tent", "shift=fog"], sets=["batch_size=100"], require=False).cells
    assert estimate.forward_seconds(cell) == pytest.approx(0.1 / 100)
    assert sizes == [8, 8, 100, 100, 100, 100]
    slow = iter([0, 9, 9, 13, *range(20, 28)])  # half a second an image: a batch of 100 would take a minute
    monkeypatch.setattr(estimate, "now", lambda device: next(slow))
    sizes.clear()
    assert estimate.forward_seconds(cell) == pytest.approx(1 / 8)
    assert sizes == [8] * 6
