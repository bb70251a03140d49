"""The strip of photos over time: what the learner saw, what it said, and what was true.

In: digests. Out: HTML with the images inside it as data, shrunk where they are large, at most a few dozen.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
import polars as pl
from PIL import Image, UnidentifiedImageError

from driftline.metrics.online import spread
from driftline.report.compare import stream_of
from driftline.report.digest import RunDigest

MAX_PHOTOS = 32
MAX_SIDE_PX = 192
SMALL_PX = 64
"""Smaller images are enlarged with sharp edges, so that one sees what the model sees."""
MAX_PIXELS = 40_000_000


def strip_html(found: Sequence[RunDigest]) -> str:
    """Photos of the first run that has some, each with the answer of every run that predicted it."""
    owner = next((d for d in found if d.samples is not None and len(d.samples)), None)
    if owner is None or owner.samples is None:
        return ""
    names = dict(owner.classes.select("label", "name").iter_rows())
    # Positions of a supervised run are those of the validation set: its photos are others.
    alike = [
        d
        for d in found
        if d.run.is_supervised == owner.run.is_supervised and stream_of(d.run) == stream_of(owner.run)
    ]
    answers = [(d.name, _answers(d)) for d in alike]
    chosen = owner.samples.sort("position")
    items = []
    for position, time_s, label, image in (
        chosen[spread(len(chosen), MAX_PHOTOS).tolist()]
        .select("position", "time", "label", "image")
        .iter_rows()
    ):
        picture = _picture(image, f"photo {position}, truth {names.get(label, label)}")
        if picture:
            lines = "".join(
                _answer(name, said.get(position), label, names, len(alike) > 1) for name, said in answers
            )
            date = str(np.datetime64(time_s, "s").astype("datetime64[D]"))
            items.append(
                f"<li>{picture}<time>{date}</time><strong>{escape(str(names.get(label, label)))}</strong><ul>{lines}</ul></li>"
            )
    return (
        f'<ul class="strip" tabindex="0" aria-label="Photos over time">{"".join(items)}</ul>' if items else ""
    )


def _answers(d: RunDigest) -> dict[int, int]:
    frame = (
        d.samples if d.samples is not None else pl.DataFrame(schema={"position": pl.Int64, "pred": pl.Int32})
    )
    return dict(frame.select("position", "pred").iter_rows())


def _answer(run: str, pred: int | None, label: int, names: dict[int, str], with_name: bool) -> str:
    if pred is None or pred < 0:
        return ""
    mark, word = ("\u2713", "right") if pred == label else ("\u2717", "wrong")
    said = "" if pred == label else f" {names.get(pred, pred)}"
    who = f"{run}:" if with_name else ""
    return (
        f'<li><span role="img" aria-label="{word}">{mark}</span> {escape(who)}{escape(said or " right")}</li>'
    )


def _picture(data: bytes | None, says: str) -> str:
    """An image element with its bytes inside; nothing for bytes that are no image."""
    try:
        with Image.open(io.BytesIO(data or b"")) as image:
            if image.width * image.height > MAX_PIXELS or image.format not in ("PNG", "JPEG"):
                return ""
            small = max(image.size) <= SMALL_PX
            mime, body = f"image/{image.format.lower()}", data or b""
            if max(image.size) > MAX_SIDE_PX:
                mime, body = "image/jpeg", _shrunk(image)
    except (UnidentifiedImageError, OSError, ValueError):
        return ""
    code = base64.b64encode(body).decode()
    return f'<img{" class=small" if small else ""} src="data:{mime};base64,{code}" alt="{escape(says)}" loading="lazy">'


def _shrunk(image: Image.Image) -> bytes:
    plain = image.convert("RGB")
    plain.thumbnail((MAX_SIDE_PX, MAX_SIDE_PX))
    file = io.BytesIO()
    plain.save(file, "JPEG", quality=82)
    return file.getvalue()
