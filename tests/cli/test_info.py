"""`steep info`: what a bug report needs, and nothing about whose machine it is."""

from __future__ import annotations

import getpass
import json
import platform
import socket
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import torch

import steep
from steep.cli import info, main


def test_it_says_what_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["steep"]["version"] == steep.__version__
    assert platform.python_version() in facts["steep"]["python"]
    assert facts["libraries"]["torch"] == torch.__version__
    assert facts["libraries"]["numpy"] == np.__version__
    assert facts["device"]["bfloat16 on cpu"].endswith("(measured now)")
    assert ("cuda:0" in facts["device"]) == torch.cuda.is_available()


def test_every_extra_a_user_may_install_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    assert main(["info"]) == 0
    text = capsys.readouterr().out
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra, needs in project["optional-dependencies"].items():
        if extra not in ("dev", "docs"):
            assert f"\n  {extra} " in text
            assert all(need.partition(">")[0].partition("[")[0] in text for need in needs)


def test_what_is_missing_is_called_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(info, "version", nowhere)
    assert set(info.gather()["libraries"].values()) == {"absent"}


def test_no_path_no_host_no_user(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    for private in (str(Path.home()), str(Path.cwd()), socket.gethostname(), str(Path(steep.__file__).parent)):
        assert private not in text
    assert "/" not in text
    user = getpass.getuser()
    assert user not in text.replace("\n", " ").split()
