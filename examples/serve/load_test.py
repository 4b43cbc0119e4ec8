"""Ask the server from many clients at once, kill it on the way where asked to, and check every answer.

    python examples/serve/load_test.py --clients 8 --seconds 60 --kills 2

It starts a server of its own, with the settings of the environment (SERVE_METHOD=bn …), and ends it. An answer must
bear the id of its request and the checksum of its picture, and the numbers of the batches must not fall. It prints a
row of JSON, and fails if an answer was lost, wrong or out of order or if a killed server did not keep its state.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import io
import json
import math
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import torch
from PIL import Image

from steep import provenance
from steep.predicting import load_model, open_pictures
from worker import Settings

HERE = Path(__file__).parent


class Server:
    """A server process that can be killed and started again; `life` counts the starts."""

    def __init__(self, folder: Path) -> None:
        """Choose a free port, and a file for the state."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self.life = f"http://127.0.0.1:{self.port}", 0
        self.environment = {"SERVE_STATE": str(folder / "state.safetensors"), **os.environ}
        self.log = (folder / "server.log").open("ab")

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(HERE), "--port", str(self.port)]
        self.process = subprocess.Popen(command, env=self.environment, stdout=self.log, stderr=self.log)
        async with httpx2.AsyncClient(base_url=self.url) as http:
            while True:
                if self.process.poll() is not None:
                    raise SystemExit(f"the server has ended:\n{Path(self.log.name).read_text()[-2000:]}")
                try:
                    (await http.get("/healthz")).raise_for_status()
                    break
                except httpx2.HTTPError:
                    await asyncio.sleep(0.1)
        self.life += 1

    async def stats(self) -> dict[str, Any]:
        """Ask what it counts."""
        async with httpx2.AsyncClient(base_url=self.url, timeout=60) as http:
            return (await http.get("/stats")).json()

    def end(self, how: signal.Signals) -> None:
        """Send it a signal, and wait until it is gone."""
        self.process.send_signal(how)
        self.process.wait(timeout=120)


class Load:
    """What the clients ask, and what came of it."""

    def __init__(self, server: Server, pixels: np.ndarray, until: float) -> None:
        """Take the pictures (N, H, W, 3)."""
        self.server, self.until, self.counts = server, until, collections.Counter[str]()
        self.checksums = [zlib.crc32(each) for each in pixels]
        self.bodies = [_png(each) for each in pixels]
        self.seconds: list[float] = []  # of each answer, from the attempt that brought it
        self.answers: list[tuple[int, str]] = []  # picture, class

    async def client(self, number: int) -> None:
        """Ask one picture after another, each until it is answered."""
        pick, life, batch = random.Random(number), 0, 0
        async with httpx2.AsyncClient(base_url=self.server.url, timeout=60) as http:
            while time.monotonic() < self.until:
                index, name = pick.randrange(len(self.bodies)), f"{number}-{pick.getrandbits(64):x}"
                before = self.server.life
                answer = await self.ask(http, index, name)
                if answer is None:
                    self.counts["lost"] += 1
                    continue
                self.counts["answered"] += 1
                self.counts["wrong"] += (answer["id"], answer["pixels"]) != (name, self.checksums[index])
                # only within one life of the server: one that was killed counts again from its last save
                self.counts["out of order"] += life == before == self.server.life and answer["batch"] < batch
                life, batch = self.server.life, answer["batch"]
                self.answers.append((index, answer["class"]))

    async def ask(self, http: httpx2.AsyncClient, index: int, name: str) -> dict[str, Any] | None:
        """Post a picture until it is answered, or for a minute after the end."""
        while time.monotonic() < self.until + 60:
            start = time.monotonic()
            try:
                answer = await http.post("/predict", content=self.bodies[index], headers={"X-Request-Id": name})
            except httpx2.TransportError:  # the server was killed
                self.counts["broken"] += 1
                await asyncio.sleep(0.2)
                continue
            if answer.status_code == 503:
                self.counts["refused"] += 1
                await asyncio.sleep(float(answer.headers["Retry-After"]))
                continue
            self.seconds.append(time.monotonic() - start)
            return answer.raise_for_status().json()
        return None

    async def kill(self, after: float) -> dict[str, Any]:
        """Kill the server, start it again, and say what it had and has."""
        await asyncio.sleep(after)
        last, start = await self.server.stats(), time.monotonic()
        end, self.until = self.until, math.inf  # nobody gives up while it starts again
        self.server.end(signal.SIGKILL)
        await self.server.start()
        down, resumed_at = time.monotonic() - start, (await self.server.stats())["resumed_at"]
        self.until = end + down  # the load lasts as long as asked for without it
        kept = resumed_at >= last["saved_at"] > 0
        return {"batches": last["state_batches"], "resumed_at": resumed_at, "kept": kept, "down_s": round(down, 1)}


async def measure(server: Server, pixels: np.ndarray, clients: int, seconds: float, kills: int) -> dict[str, Any]:
    """Run the load and put what came of it into a row."""
    await server.start()
    begin = time.monotonic()
    load = Load(server, pixels, begin + seconds)

    async def kill_now_and_then() -> list[dict[str, Any]]:
        return [await load.kill(seconds / (kills + 1)) for _ in range(kills)]

    killed, *_ = await asyncio.gather(kill_now_and_then(), *(load.client(number) for number in range(clients)))
    took = time.monotonic() - begin - sum(each["down_s"] for each in killed)
    stats = await server.stats()
    server.end(signal.SIGTERM)
    counts = {name: load.counts[name] for name in ("answered", "lost", "wrong", "out of order", "refused", "broken")}
    centiles = statistics.quantiles(load.seconds, n=100)
    return {
        **{name.replace(" ", "_"): count for name, count in counts.items()},
        "p50_ms": round(1000 * centiles[49]),
        "p99_ms": round(1000 * centiles[98]),
        "images_per_s": round(counts["answered"] / took, 2),
        "batch_mean": round(stats["images"] / max(1, stats["batches"]), 2),  # since the last start
        "state_batches": stats["state_batches"],
        "kills": killed,
        **agreement(pixels, load.answers),
    }


@torch.no_grad()
def agreement(pixels: np.ndarray, answers: list[tuple[int, str]]) -> dict[str, float]:
    """How often an answer is the source model's for that picture, and for a picture drawn from the other answers."""
    settings = Settings.from_environment()
    loaded = load_model(settings.model, weights=settings.weights or None)
    labels = loaded.model(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255).argmax(dim=1).tolist()
    names = [loaded.classes[label] if loaded.classes else str(label) for label in labels]
    expected = collections.Counter(names[index] for index, _ in answers)
    answered = collections.Counter(name for _, name in answers)
    chance = sum(expected[name] * answered[name] for name in answered) / len(answers) ** 2
    same = sum(names[index] == name for index, name in answers) / len(answers)
    return {"agree_with_source": round(same, 4), "agree_by_chance": round(chance, 4)}


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _pictures(folder: Path | None, size: int, count: int) -> np.ndarray:
    """Read pictures of a folder, or make some up: smooth colours, each its own."""
    if folder is not None:
        files = open_pictures(folder)
        return np.stack([files.read(index, size, 3) for index in range(min(count, len(files)))])
    coarse = np.random.default_rng(0).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return np.stack(
        [np.asarray(Image.fromarray(each).resize((size, size), Image.Resampling.BICUBIC)) for each in coarse]
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure, and print the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=0, help="how often the server is killed (-9) and started again")
    parser.add_argument("--pictures", type=Path, help="a folder or .npy file, as in `steep predict --images`")
    parser.add_argument("--count", type=int, default=500, help="of pictures")
    parser.add_argument("--note", default="", help="kept in the row")
    parser.add_argument("--out", type=Path, help="a file to append the row to")
    asked, settings = parser.parse_args(arguments), Settings.from_environment()
    pixels, busy = _pictures(asked.pictures, settings.size, asked.count), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            result = asyncio.run(measure(server, pixels, asked.clients, asked.seconds, asked.kills))
        finally:
            if server.process.poll() is None:
                server.end(signal.SIGKILL)
            server.log.close()
    names = ("model", "method", "batch", "waiting", "save_every")
    about: dict[str, Any] = {name: getattr(settings, name) for name in names}
    about |= {"clients": asked.clients, "seconds": asked.seconds, "pictures": len(pixels), "note": asked.note}
    about |= {"cores": os.cpu_count(), "load_before": round(busy, 1)}  # what else runs here
    row = {"benchmark": "serve", **about, **result, **provenance.stamp(settings.device)}
    print(json.dumps(row))
    if asked.out is not None:
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    if row["lost"] or row["wrong"] or row["out_of_order"] or not all(each["kept"] for each in row["kills"]):
        raise SystemExit("an answer was lost, wrong or out of order, or a state was not kept")
    return row


if __name__ == "__main__":
    main()
