"""The arithmetic of docs/scaling.md: what its code prints stands below it, and is what ranks really send."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import steep
from nets import images
from steep.core.dist.group import Group

HOME = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::steep.errors.SteepWarning")


@pytest.fixture(scope="module")
def page() -> tuple[str, str, dict]:
    """What the code prints, what the page says that it does, and the names that it defines."""
    text = (HOME / "docs/scaling.md").read_text(encoding="utf-8")
    code, shown = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.S).groups()
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "scaling.md", "exec"), names)
    return printed.getvalue(), shown, names


def test_the_table_is_what_the_code_prints(page):
    printed, shown, names = page
    assert printed == shown
    rows = [json.loads(line) for line in (HOME / "results/first-look-h200.jsonl").read_text().splitlines()]
    (source,) = [row for row in rows if row["what"] == "clean source" and row["precision"] == "bfloat16"]
    assert names["CALCULATES"] == pytest.approx(source["ips"] * names["flops"], rel=0.01)


@pytest.fixture
def lone_rank(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["tent", "tea", "tea-fast"])
def test_messages_and_bytes_are_those_that_are_sent(page, lone_rank, monkeypatch, name):
    model = steep.models.build("wrn-10-1", 10)
    hyper = {} if name == "tent" else {"sgld_steps": 2, "buffer_size": 64}
    adapter = steep.adapt(model, name, distributed=True, **hyper)
    sums, gathers = [], []
    monkeypatch.setattr(Group, "sum_", lambda self, t: sums.append(t.numel() * t.element_size()) or t)
    monkeypatch.setattr(Group, "gather", lambda self, t, counts: gathers.append(t.numel() * t.element_size()) or t)
    adapter(images(20, size=32))
    method = steep.methods.make(name, **hyper)
    messages, summed, gathered = page[2]["traffic"](model, method, 20)
    assert (len(sums), sum(sums), sum(gathers)) == (messages, summed, gathered)


def test_ranks_may_be_one(lone_rank):
    model, x = steep.models.build("wrn-10-1", 10), images(20, size=32)
    torch.testing.assert_close(
        steep.adapt(model, "tent", distributed=True)(x), steep.adapt(model, "tent")(x), rtol=0, atol=1e-5
    )
