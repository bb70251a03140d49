"""The end of a run: its logs become the files that others build on, and the figures are computed from them.

In: a run whose loop has ended. Out: Parquet files and `summary.json`, which is written last: a directory with a summary is whole.
"""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image

from driftline.engine import tensor_file
from driftline.engine.checkpoint import weights_path
from driftline.engine.logs import quarantine_table, write_parquet, write_table
from driftline.engine.memory import peak_memory_mb
from driftline.engine.start import shared_state
from driftline.geo import s2
from driftline.geo.distance import great_circle_km
from driftline.learners.base import State
from driftline.learners.replay import Arithmetic
from driftline.metrics.geolocation import error_cdf
from driftline.metrics.log import PredictionLog
from driftline.metrics.summary import summarise_geolocation, summarise_online, summarise_transfer
from driftline.streams.durable import replacing
from driftline.streams.fetch import FetchRequest, Pipeline
from driftline.types import TOP, BadSampleError, ClassTable, FloatArray, IntArray, LabelArray, Split
from driftline.version import FORMAT, VERSION

if TYPE_CHECKING:
    from driftline.engine.run import Run

PROTOCOL = "online-1"
EVALUATION_BATCH = 256
CHUNK = 1 << 18
NUM_PICTURES = 48
PICTURE_SIZE = 96


def finish_run(run: Run) -> dict[str, Any]:
    """Write everything; the summary."""
    out = run.out
    write_parquet(run.curves, out / "curves.parquet")
    kept = _kept_weights(run)
    bad: dict[int, BadSampleError] = {}
    transfer = _transfer(run, kept, bad)
    write_table(_set_aside(run, bad), out / "quarantine.parquet")
    write_table(transfer.to_arrow().cast(TRANSFER), out / "transfer.parquet")
    figures: dict[str, Any] = {"format": FORMAT, "protocol": PROTOCOL}
    if run.config.learner == "supervised":
        figures |= _offline_figures(run, transfer)
    else:
        write_parquet(run.predictions, out / "predictions.parquet")
        figures |= _online_figures(run, transfer, kept)
    figures |= _conditions(run) | {"bad_validation_samples": len(bad)}
    with replacing(out / "summary.json") as temporary:
        temporary.write_text(json.dumps(figures, indent=2) + "\n")
    return figures


def help_finish(run: Run) -> dict[str, Any]:
    """What the other processes do while the first one finishes: their part of the validation set. There is no summary here."""
    _transfer(run, _kept_weights(run), {})
    return {}


# -- validation


def _kept_weights(run: Run) -> dict[str, dict[str, Any]]:
    """The weights kept on the way, in order of time; one that is missing or damaged stops here."""

    def kept(name: str) -> dict[str, Any]:
        path = weights_path(run.out, name)
        state = shared_state(run.team, lambda: (tensor_file.load(path), path))
        assert state is not None
        return state

    return {name: kept(name) for name in run.kept.values()}


TRANSFER = pa.schema(
    {
        "checkpoint": pa.string(),
        "position": pa.int64(),
        "time": pa.int64(),
        "label": pa.int32(),
        "pred": pa.int32(),
        "top5": pa.list_(pa.int32()),
    }
)


def _set_aside(run: Run, bad: dict[int, BadSampleError]) -> pa.Table:
    """The bad samples of both splits."""
    num_validation = len(run.setup.stream.validation)
    if len(bad) > run.config.max_bad_share * num_validation:
        run.warn(
            f"{len(bad)} of {num_validation} validation samples could not be used (see quarantine.parquet); "
            "transfer is measured on the others"
        )
    rows = [
        {"position": p, "step": None, "reason": error.reason, "split": "validation"}
        for p, error in sorted(bad.items())
    ]
    return pa.concat_tables([run.quarantine.table(), quarantine_table(rows)])


def _transfer(run: Run, kept: dict[str, dict[str, Any]], bad: dict[int, BadSampleError]) -> pl.DataFrame:
    """Predictions for the whole validation set by each of the kept weights; the samples that are `bad` are noted."""
    present = run.learner.weights()
    frames = [_evaluate(run, name, state["weights"], bad) for name, state in kept.items()]
    if run.team.is_first:
        run.learner.load_weights(present)
    return _all_parts(run, pl.concat(frames), bad)


def _all_parts(run: Run, part: pl.DataFrame, bad: dict[int, BadSampleError]) -> pl.DataFrame:
    """On the first process: what all have predicted, in the order in which one would have."""
    if run.team.size == 1:
        return part
    buffer = io.BytesIO()
    part.write_ipc(buffer)
    parts = [pl.read_ipc(io.BytesIO(data)) for data in run.team.gather(buffer.getvalue())]
    reasons = json.dumps([(error.position, error.reason) for error in bad.values()]).encode()
    for told in run.team.gather(reasons):
        bad |= {position: BadSampleError(position, reason) for position, reason in json.loads(told)}
    if not run.team.is_first:
        return part
    order = pl.Enum(list(run.kept.values()))
    return pl.concat(parts).sort(pl.col("checkpoint").cast(order), "position")


def _evaluate(run: Run, name: str, weights: State, bad: dict[int, BadSampleError]) -> pl.DataFrame:
    run.learner.load_weights(weights)
    parts = []
    for positions, labels, times, images in _validation_batches(run, bad):
        classes = run.learner.predict(images).topk(min(TOP, len(run.setup.stream.classes)), dim=1).indices
        top = classes.cpu().numpy().astype(np.int32)
        columns = {"position": positions, "time": times, "label": labels, "pred": top[:, 0].copy()}
        parts.append(
            pl.DataFrame(columns).with_columns(top5=pl.Series(top.tolist(), dtype=pl.List(pl.Int32)))
        )
    empty = pl.DataFrame(
        schema={
            "position": pl.Int64,
            "time": pl.Int64,
            "label": pl.Int32,
            "pred": pl.Int32,
            "top5": pl.List(pl.Int32),
        }
    )
    return pl.concat([empty, *parts]).select(pl.lit(name).alias("checkpoint"), pl.all())


def _validation_batches(
    run: Run, bad: dict[int, BadSampleError]
) -> Iterator[tuple[IntArray, LabelArray, IntArray, torch.Tensor]]:
    split = run.setup.stream.validation
    ranks = run.team.ranks  # whole batches go in turn to the processes
    starts = iter(range(ranks.rank * EVALUATION_BATCH, len(split), ranks.size * EVALUATION_BATCH))
    nothing = np.empty(0, np.int64)

    def plan() -> FetchRequest | None:
        start = next(starts, None)
        if start is None:
            return None
        return FetchRequest(0, np.arange(start, min(start + EVALUATION_BATCH, len(split))), nothing, 0)

    pipeline = Pipeline(run.setup.fetcher(split), plan, run.config.workers)
    try:
        while (fetched := pipeline.next()) is not None:
            bad |= {error.position: error for error in fetched.bad}
            if fetched.samples is not None and fetched.test_images is not None and len(fetched.samples):
                yield (
                    fetched.samples.position,
                    fetched.samples.label,
                    fetched.samples.time,
                    fetched.test_images,
                )
    finally:
        pipeline.close()


# -- figures


def _online_figures(run: Run, transfer: pl.DataFrame, kept: dict[str, dict[str, Any]]) -> dict[str, Any]:
    log = PredictionLog.read(run.out / "predictions.parquet")
    figures = summarise_online(log, len(run.setup.stream.classes))
    figures["checkpoints"] = {
        name: {k: s[k] for k in ("step", "position", "time")} for name, s in kept.items()
    }
    # Without a validation set there is no transfer to speak of.
    times = {name: state["time"] for name, state in kept.items()} if len(transfer) else {}
    figures |= summarise_transfer(transfer, times)
    _write_pictures(run, run.setup.stream.train, log.position, log.label, log.pred, log.time)
    return figures | _geolocation(run, run.setup.stream.train, log.position, log.pred)


def _offline_figures(run: Run, transfer: pl.DataFrame) -> dict[str, Any]:
    position, label, pred, time_s = (transfer[c].to_numpy() for c in ("position", "label", "pred", "time"))
    figures: dict[str, Any] = {"validation_accuracy": float((label == pred).mean()) if len(label) else None}
    figures["chance"] = 1 / len(run.setup.stream.classes)
    _write_pictures(run, run.setup.stream.validation, position, label, pred, time_s)
    return figures | _geolocation(run, run.setup.stream.validation, position, pred)


def _geolocation(run: Run, split: Split, position: IntArray, pred: LabelArray) -> dict[str, Any]:
    """Great-circle error of the predictions, where the stream has places."""
    classes = run.setup.stream.classes
    if classes.lat is None or classes.lon is None or not len(position):
        return {}
    distance_km = np.concatenate(list(_distances(classes.lat, classes.lon, split, position, pred)))
    cdf = error_cdf(distance_km)
    columns = {"distance_km": cdf.distance_km, "share": cdf.share}
    write_table(pa.table(columns), run.out / "geolocation.parquet")
    return {"geolocation_error_km": summarise_geolocation(distance_km)}


def _distances(
    lat: FloatArray, lon: FloatArray, split: Split, position: IntArray, pred: LabelArray
) -> Iterator[NDArray[np.float32]]:
    for start in range(0, len(position), CHUNK):
        wanted, guess = position[start : start + CHUNK], pred[start : start + CHUNK]
        first = int(wanted[0])
        samples = split.samples(first, int(wanted[-1]) + 1)
        at = wanted - first
        yield great_circle_km(samples.lat[at], samples.lon[at], lat[guess], lon[guess]).astype(np.float32)


def _conditions(run: Run) -> dict[str, Any]:
    """How the figures came about."""
    config = run.config
    arithmetic = Arithmetic.choose(config.device, config.precision)
    return {
        "stream": {"name": run.setup.stream.name, "fingerprint": run.setup.stream.fingerprint},
        "classes": len(run.setup.stream.classes),
        "samples": run.num_samples,
        "steps": run.num_steps,
        "bad_samples": run.num_bad,
        "gradient_steps": run.num_steps * config.gd_steps * config.num_members
        if config.learner != "none"
        else 0,
        "seconds": round(run.seconds, 3),
        "samples_per_second": round(run.num_samples / max(run.seconds, 1e-9), 1),
        "peak_rss_mb": round(peak_memory_mb(), 1),
        "seed": config.seed,
        "resumed": run.resumed,
        "precision": str(arithmetic.dtype).removeprefix("torch."),
        "digest": config.digest(),
        "versions": {
            "driftline": VERSION,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


# -- what the report shows besides figures


def class_table(classes: ClassTable) -> pa.Table:
    """What the labels mean, a row a class."""
    num = len(classes)
    return pa.table(
        {
            "label": pa.array(np.arange(num, dtype=np.int32)),
            "name": pa.array(list(classes.names), pa.string()),
            "cell": pa.array(
                s2.tokens(classes.cells) if classes.cells is not None else [None] * num, pa.string()
            ),
            "lat": pa.array(classes.lat if classes.lat is not None else [None] * num, pa.float64()),
            "lon": pa.array(classes.lon if classes.lon is not None else [None] * num, pa.float64()),
        }
    )


def _write_pictures(
    run: Run, split: Split, position: IntArray, label: LabelArray, pred: LabelArray, time_s: IntArray
) -> None:
    """A few dozen samples, evenly over the stream, small enough for a page."""
    rows = np.unique(np.linspace(0, len(position), NUM_PICTURES, endpoint=False).astype(np.int64))[
        : len(position)
    ]
    images = split.images(position[rows])
    good = [i for i, image in enumerate(images) if not isinstance(image, BadSampleError)]
    chosen = rows[good]
    table = pa.table(
        {
            "position": pa.array(position[chosen], pa.int64()),
            "time": pa.array(time_s[chosen], pa.int64()),
            "label": pa.array(label[chosen], pa.int32()),
            "pred": pa.array(pred[chosen], pa.int32()),
            "image": pa.array([_png(np.asarray(images[i])) for i in good], pa.binary()),
        }
    )
    write_table(table, run.out / "samples.parquet")


def _png(image: NDArray[np.uint8]) -> bytes:
    picture = Image.fromarray(image)
    picture.thumbnail((PICTURE_SIZE, PICTURE_SIZE))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()
