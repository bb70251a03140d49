"""A whole run against a plain PyTorch loop that does the same job the way such loops are usually written.

    python benchmarks/reference.py --quick      1,280 samples
    python benchmarks/reference.py --full       6,400 samples

Both learn online from the same JPEGs (256 x 341 pixels, views of 64) with ResNet18, batches of 64 and as many replayed, SGD with
momentum. The plain loop opens each file with Pillow three times (to test, to train, to replay), in the worker processes of three
DataLoaders, and computes in float32. Samples a second of the whole job, in turn, in one process tree.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from _measure import jpeg_stream, line, show, sizes
from driftline.config import RunConfig
from driftline.engine.run import Run
from driftline.models.build import build_model
from driftline.streams.store import StoredStream

SIZE, BATCH, WORKERS = 64, 64, 2
LIMIT = 3.0


class Photos(Dataset[tuple[Tensor, int]]):
    """Files in a given order, each opened, cut and scaled when asked for."""

    def __init__(self, files: list[Path], labels: list[int], order: list[int], train: bool) -> None:
        self.files, self.labels, self.order, self.train = files, labels, order, train

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = Image.open(self.files[self.order[i]]).convert("RGB")
        image = random_crop(image) if self.train else centre_crop(image)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
        return (pixels - 0.45) / 0.25, self.labels[self.order[i]]


def random_crop(image: Image.Image) -> Image.Image:
    width, height = image.size
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, tall = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if wide <= width and tall <= height:
            left, top = random.randint(0, width - wide), random.randint(0, height - tall)
            image = image.crop((left, top, left + wide, top + tall))
            break
    image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def centre_crop(image: Image.Image) -> Image.Image:
    scale = SIZE / (min(image.size) * 7 / 8)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - SIZE) // 2, (image.height - SIZE) // 2
    return image.crop((left, top, left + SIZE, top + SIZE))


def plain_loop(files: list[Path], labels: list[int], buffer: int) -> float:
    """Share of samples predicted right before they were learned from."""
    order = list(range(len(files)))
    replayed = [random.randrange(max(0, i - buffer), max(i, 1)) for i in order]
    model = build_model("resnet18", 100, "group", 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0125, momentum=0.9, weight_decay=1e-4)
    loaders = [
        DataLoader(Photos(files, labels, which, train), BATCH, num_workers=WORKERS)
        for which, train in ((order, False), (order, True), (replayed, True))
    ]
    right = 0
    for (test, truth), (x, y), (x_old, y_old) in zip(*loaders, strict=True):
        model.eval()
        with torch.no_grad():
            right += int((model(test).argmax(1) == truth).sum())
        model.train()
        loss = nn.functional.cross_entropy(model(torch.cat([x, x_old])), torch.cat([y, y_old]))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return right / len(files)


def driftline_run(stream: StoredStream, out: Path, num: int) -> float:
    """The same with driftline, its logs and checkpoints included."""
    config = RunConfig(
        stream=str(stream.path),
        model="resnet18",
        image_size=SIZE,
        batch_size=BATCH,
        limit=num,
        workers=WORKERS,
        # As often as a stream worth learning from; shares of so short a one would come with every step.
        checkpoint_every="2000",
    )
    run = Run(config, out, stream=stream)
    right = [r.predictions["pred"] == r.predictions["label"] for r in run.records()]
    return float(np.concatenate(right).mean())


def main() -> dict[str, Any]:
    args = sizes(__doc__, quick="about a minute", full="several minutes")
    num, rounds = (6_400, 3) if args.full else (1_280, 1)
    seconds: dict[str, list[float]] = {"plain": [], "driftline": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = jpeg_stream(folder / "stream", num)
        files, labels = [], stream.train.labels(np.arange(num)).tolist()
        (folder / "files").mkdir()
        for i, payload in enumerate(stream.train.payloads(np.arange(num))):
            files.append(folder / "files" / f"{i}.jpg")
            assert isinstance(payload, bytes)
            files[-1].write_bytes(payload)
        for number in range(rounds):
            started = time.perf_counter()
            plain_loop(files, labels, buffer=num // 10)
            seconds["plain"].append(time.perf_counter() - started)
            started = time.perf_counter()
            driftline_run(stream, folder / f"run{number}", num)
            seconds["driftline"].append(time.perf_counter() - started)
    rate = {key: round(num / min(values), 1) for key, values in seconds.items()}
    ratio = min(seconds["plain"]) / min(seconds["driftline"])
    return show(
        [line("whole run / plain reference, resnet18, 64 px of 256 px JPEG", ratio, at_least=LIMIT)],
        samples_per_second=rate,
    )


if __name__ == "__main__":
    main()
