"""Rows as `steep bench` stores them, made by hand for tests of reports."""

from __future__ import annotations

from typing import Any

from steep.report.paper import benchmark

SPEC: dict[str, Any] = {
    "data": "digits-c",
    "source": "",
    "model": "wrn-10-1",
    "weights": "digits",
    "weights_sha256": "ab" * 32,
    "protocol": "reset",
    "delta": None,
    "batch_size": 100,
    "size": None,
    "channels": None,
    "limit": None,
    "precision": "float32",
    "setting": "paper",
    "predict": "before",
    "steps": 1,
    "episodic": False,
    "guard": "off",
    "hyper": {},
    "seed": 0,
}
BARS = {"counts": [0, 10], "confidence": [0.0, 0.75], "accuracy": [0.0, 0.5]}


def row(method: str, shift: str, accuracy: float, severity: int = 5, seed: int = 0, **more: Any) -> dict[str, Any]:
    spec = {**SPEC, "method": method, "shift": shift, "severity": severity, "seed": seed, "label": method}
    spec |= {key: more.pop(key) for key in list(more) if key in SPEC or key == "label"}
    return {
        "schema": 1,
        "key": repr(sorted(map(repr, spec.items()))),
        "spec": spec,
        "accuracy": accuracy,
        "error": 1 - accuracy,
        "n": 10,
        "images_per_s": 100.0,
        "calibration": BARS,
        "segments": [],
        "finished": "2026-01-01",
        "env": {"device": "NVIDIA H200", "commit": "c" * 40, "versions": {"steep": "1.0"}},
        **more,
    }


Rows = list[dict[str, Any]]
METHODS = ("source", "bn", "dua", "pl", "shot", "tent", "eta", "eata", "sar", "tea")
ABOUT = {"data": "cifar10-c", "model": "wrn-28-10", "batch_size": 200}


def cell(method: str, shift: str, accuracy: float, severity: int = 5, n: int = 10_000, **more: Any) -> dict[str, Any]:
    return row(method, shift, accuracy, severity, **{**ABOUT, **more, "n": n, "run": more.pop("run", "a")})


def grid(accuracies: dict[str, float], severities: tuple[int, ...] = (5,), **more: Any) -> Rows:
    return [
        cell(name, shift, value, level, **more)
        for name, value in accuracies.items()
        for shift in benchmark()
        for level in severities
    ]


def ten(tea: float, rest: float = 0.7) -> dict[str, float]:
    return {**dict.fromkeys(METHODS, rest), "source": 0.5, "tea": tea}
