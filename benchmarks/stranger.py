"""From nothing to a verdict: how long does it take somebody who has a Hugging Face model and a folder of pictures?

    python -m benchmarks.stranger --folder PLACE --out results/stranger-cpu.jsonl

Makes in PLACE, where they are not there yet, a small ResNet of transformers, trained on CIFAR-10 and saved as a folder,
and pictures that it has not seen, most under fog, some clean, in a drawn order, without labels. Then makes a fresh
virtual environment, installs this checkout in it as the README says, and runs the README's command: all that a stranger
does. The same command with labels, which a stranger has not, says what is true.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from transformers import ResNetConfig, ResNetForImageClassification

import steep
from benchmarks.rows import append
from steep import provenance
from steep.data import load, to_device

HOME = Path(__file__).parents[1]
INSTALL = ("-m", "pip", "install", "--quiet", "-c", "constraints.txt", ".[hf]")
PACKAGES = ("torch", "transformers", "numpy", "pillow")
FOGGED, CLEAN, SIDE = 400, 100, 64
MEAN, STD = [0.49, 0.48, 0.45], [0.25, 0.24, 0.26]


def make_model(folder: Path, epochs: int) -> None:
    """Train a ResNet of 1.2 million weights on pictures brought to 64 pixels, and save it as its library does."""
    torch.manual_seed(0)
    data = load("cifar10", "train")
    names = {"id2label": dict(enumerate(data.classes)), "label2id": {name: n for n, name in enumerate(data.classes)}}
    shape = {"embedding_size": 32, "hidden_sizes": [32, 64, 128, 256], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    net = ResNetForImageClassification(ResNetConfig(**shape, **names))
    ready = steep.models.Normalized(net, mean=MEAN, std=STD).train()
    batches = [order for _ in range(epochs) for order in torch.randperm(len(data)).split(128)]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=len(batches))
    for number, order in enumerate(batches):
        x = to_device(data.images[order.numpy()])
        x = functional.interpolate(x.flip(3) if number % 2 else x, size=SIDE, mode="bilinear")
        loss = functional.cross_entropy(ready(x).logits, torch.from_numpy(data.labels[order.numpy()]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if number % 100 == 0:
            print(f"batch {number} of {len(batches)}, loss {loss.item():.2f}", flush=True)
    net.eval().save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    processor = {"image_processor_type": "ConvNextImageProcessor", "size": size, "crop_pct": 1.0}
    text = json.dumps({**processor, "image_mean": MEAN, "image_std": STD})
    (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")


def make_pictures(folder: Path, truth: Path) -> None:
    """Write test pictures as files, most of them fogged; what they show goes to another file."""
    data = load("cifar10", limit=FOGGED + CLEAN)
    images = np.concatenate([steep.corrupt(data.images[:FOGGED], "fog", severity=4), data.images[FOGGED:]])
    lines = []
    folder.mkdir(parents=True)
    for place, number in enumerate(np.random.default_rng(0).permutation(len(images))):
        Image.fromarray(images[number]).save(folder / f"{place:04}.png")
        lines.append(f"{place:04}.png,{data.classes[data.labels[number]]}\n")
    truth.write_text("".join(lines), encoding="utf-8")


def timed(*command: str | Path) -> tuple[float, str]:
    """Run a command where the checkout is; give its seconds and what it printed."""
    begun = time.perf_counter()
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=HOME, env=alone, check=True, capture_output=True, text=True)
    return round(time.perf_counter() - begun, 1), done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    model, pictures, truth, place = (asked.folder / name for name in ("model", "pictures", "truth.csv", "fresh"))
    if not model.exists():
        make_model(model, asked.epochs)
    if not pictures.exists():
        make_pictures(pictures, truth)
    begun = time.perf_counter()
    venv.create(place, clear=True, with_pip=True)
    row = {"benchmark": "stranger", "environment_s": round(time.perf_counter() - begun, 1)}
    programs = place / ("Scripts" if sys.platform == "win32" else "bin")
    row["install_s"], _ = timed(programs / "python", *INSTALL)
    command = (programs / "steep", "compare", "--model", f"hf:{model.resolve()}", "--images", pictures.resolve())
    row["command_s"], output = timed(*command)
    print(output)
    row["again_s"], _ = timed(*command)
    _, labelled = timed(*command, "--labels", truth.resolve())
    row |= {"pictures": FOGGED + CLEAN, "fog": FOGGED, "model": "ResNetForImageClassification", "side": SIDE}
    row |= {"verdict": output.splitlines()[-1], "with_labels": labelled.splitlines()[-1]}
    row["gain"] = float(labelled.splitlines()[3].split()[3].replace("−", "-"))  # auto's line, behind "57.6 %"
    _, listed = timed(programs / "python", "-m", "pip", "list", "--format", "json")
    row["packages"] = {each["name"]: each["version"] for each in json.loads(listed) if each["name"] in PACKAGES}
    append(asked.out, {**row, **provenance.stamp("cpu")})
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
