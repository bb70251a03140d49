"""Starts the ranks of runs as forks of one process that has imported everything, as torchrun would with fresh ones.

A line of JSON comes in for each group of ranks, a line with their process ids goes out; a second kind of line waits for processes.
Run as a script by `conftest.py`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"

import numpy as np  # noqa: E402  (the number of threads comes first)
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  (imported by the first optimizer otherwise)

import driftline.cli  # noqa: E402
import driftline.cli.progress  # noqa: E402
import driftline.cli.run  # noqa: E402
import driftline.engine.run  # noqa: E402
import driftline.engine.start  # noqa: E402
from driftline.learners import replay  # noqa: E402
from driftline.learners.replay import MEAN, STD, Arithmetic  # noqa: E402
from driftline.models.resnet import MODELS, ResNet  # noqa: E402
from driftline.streams.open import open_stream  # noqa: E402
from driftline.types import BadSampleError  # noqa: E402


def start(arguments, log, environment, folder, bad, double):
    """The process id of a fork that runs `driftline` with these arguments."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ.update(environment)
        os.chdir(folder)
        if double:
            compute_in_double()
        if bad:
            break_images(set(bad))
        driftline.cli.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def compute_in_double():
    """A small model learns in float64, in which rounding stays far below any real difference for hundreds of steps."""
    MODELS["resnet-tiny"] = lambda num_classes, norm: ResNet(
        num_classes, widths=(8, 16), depths=(1, 1), expansion=1, norm=norm, small=True
    )
    torch.set_default_dtype(torch.float64)
    to_float32 = torch.Tensor.float
    torch.Tensor.float = lambda self: self if self.dtype == torch.float64 else to_float32(self)
    Arithmetic.pixels = lambda self, images: images.double().sub_(MEAN).div_(STD)
    crop = replay.crop_batch
    replay.crop_batch = lambda images, crops, size, _, **scale: crop(
        images, crops, size, torch.float64, **scale
    )


def break_images(positions):
    """The images at some positions of any stream that is opened cannot be decoded."""
    open_stream = driftline.engine.start.open_stream

    def opened(name):
        stream = open_stream(name)
        images = stream.train.images

        def broken(wanted):
            found = images(wanted)
            return [
                BadSampleError(int(p), "undecodable") if int(p) in positions else image
                for p, image in zip(wanted, found, strict=True)
            ]

        object.__setattr__(stream.train, "images", broken)
        return stream

    driftline.engine.start.open_stream = opened


def main():
    out = os.fdopen(os.dup(1), "w")
    open_stream("world:4000").train.images(np.arange(1))  # read the pictures of the Earth once, for all forks
    for line in sys.stdin:
        task = json.loads(line)
        if "wait" in task:
            answer = os.waitstatus_to_exitcode(os.waitpid(task["wait"], 0)[1])
        else:
            answer = [start(**rank) for rank in task["ranks"]]
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
