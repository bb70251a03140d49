"""First pass over a table: its good rows, thrown into one file a calendar month, in no order yet.

Parts of a table flow in; a folder a part flows out, with Arrow files of rows by month (or by block of rows, in given order),
files of id keys by range for the search for duplicates, and the counts. A folder bears its name only when it is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from driftline.streams.building.ahead import map_ahead, read_ahead
from driftline.streams.building.metadata import Part, Rules, clean
from driftline.types import DriftlineError, IntArray

NUM_KEY_FILES = 64
MAX_LABELS = 1_000_000
"""More distinct labels than this are no classes."""

MAX_DIGITS = 18
_LEAST = np.array([1, *(10**n for n in range(MAX_DIGITS + 1))], np.uint64)
"""The least number of so many digits."""
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass
class SpillCounts:
    """What a part held."""

    num_read: int = 0
    num_good: int = 0
    places_ignored: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)
    """Rows of each month."""
    labels: list[str] = field(default_factory=list)
    file_bytes: dict[str, int] = field(default_factory=dict)
    """Sizes of the files, to see after a power failure that they are whole."""


def spill_part(
    part: Part, number: int, rules: Rules, folder: Path, tick: Callable[[int], None] = lambda rows: None
) -> SpillCounts:
    """Spill one part to `folder`, unless that was done before; `tick` hears of rows as they are read."""
    done = spilled(folder)
    if done is not None:
        tick(done.num_read)
        return done
    temporary = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    temporary.mkdir(parents=True)
    counts = SpillCounts()
    labels: set[str] = set()
    refused: Counter[str] = Counter()
    for cleaned in map_ahead(
        lambda raw: clean(raw[1], rules, part=number, first_row=raw[0]), read_ahead(_numbered(part))
    ):
        counts.num_read += cleaned.num_read
        counts.num_good += cleaned.rows.height
        refused.update(cleaned.refused)
        counts.places_ignored += cleaned.places_ignored
        if rules.needs_label:
            labels.update(cleaned.rows["label"].unique())
            _check_labels(labels, part.name)
        _append(cleaned.rows, rules, temporary, counts)
        tick(cleaned.num_read)
    counts.labels, counts.refused = sorted(labels), dict(refused)
    counts.file_bytes = {file.name: file.stat().st_size for file in sorted(temporary.iterdir())}
    (temporary / "counts.json").write_text(json.dumps(asdict(counts)), encoding="utf-8")
    temporary.rename(folder)
    return counts


def _numbered(part: Part) -> Iterator[tuple[int, pl.DataFrame]]:
    """Frames of a part, each with the number of its first row."""
    first_row = 0
    for frame in part.frames():
        yield first_row, frame
        first_row += frame.height


def spilled(folder: Path) -> SpillCounts | None:
    """The counts of a folder that is complete, or None."""
    try:
        values = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
        counts = SpillCounts(**values)
        sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.name != "counts.json"}
    except (OSError, json.JSONDecodeError, TypeError):
        return None
    return counts if sizes == counts.file_bytes else None


def _check_labels(labels: set[str], source: str) -> None:
    if len(labels) > MAX_LABELS:
        raise DriftlineError(
            f"{source}: the label column has more than {MAX_LABELS:,} different values; is it the right one? "
            "Name another with --label-column"
        )


def _append(rows: pl.DataFrame, rules: Rules, folder: Path, counts: SpillCounts) -> None:
    if rules.has_id:
        _append_keys(id_keys(rows["id"]), folder)
    # Put in the order of the months and cut: in a third less time than month by month.
    ordered = rows.select("cut", *spilled_columns(rules)).sort("cut")
    months, starts, lengths = _runs(ordered["cut"].to_numpy())
    table = ordered.drop("cut").to_arrow(compat_level=pl.CompatLevel.oldest())
    for cut, start, length in zip(months, starts, lengths, strict=True):
        _append_rows(folder / cut_file(cut), table.slice(start, length))
        counts.cuts[str(cut)] = counts.cuts.get(str(cut), 0) + length


def _runs(ordered: IntArray) -> tuple[list[int], list[int], list[int]]:
    """The values of a sorted array, with where each one begins and how often it occurs.

    >>> _runs(np.array([4, 4, 7]))
    ([4, 7], [0, 2], [2, 1])
    """
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    lengths = np.diff(starts, append=len(ordered))
    return ordered[starts].tolist(), starts.tolist(), lengths.tolist()


def spilled_columns(rules: Rules) -> list[str]:
    """What of a row later passes need.

    >>> spilled_columns(Rules(needs_place=True))
    ['id', 'user', 'time', 'lat', 'lon']
    """
    extra = {"label": rules.needs_label, "image": rules.has_image, "row": rules.given_order}
    return ["id", "user", "time", "lat", "lon", *(name for name, wanted in extra.items() if wanted)]


def cut_file(cut: int) -> str:
    """Name of the file with the rows of a month."""
    return f"cut-{cut:012d}.arrow"


def _append_rows(path: Path, table: pa.Table) -> None:
    """Add rows to a file, as one more Arrow stream; compressed, because the disk is what a long table waits for."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with path.open("ab") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table)


def read_cut(folders: list[Path], cut: int) -> pl.DataFrame:
    """The rows of a month from all parts, in no order."""
    tables = []
    for folder in folders:
        path = folder / cut_file(cut)
        if path.exists():
            with pa.memory_map(str(path)) as source:
                while source.tell() < source.size():
                    tables.append(pa.ipc.open_stream(source).read_all())
    frame = pl.from_arrow(pa.concat_tables(tables), rechunk=True)
    assert isinstance(frame, pl.DataFrame)
    return frame


def id_keys(ids: pl.Series) -> NDArray[np.uint64]:
    """A 64-bit key for each id: its own for a number of up to 18 digits, a hash with the top bit set for other text.

    Two different texts share a key with a probability of 2**-63 a pair: 0.05 % that it happens at all in 100 M rows. A key is
    only compared with keys of the same build.
    """
    numbers = ids.cast(pl.UInt64, strict=False).fill_null(0).to_numpy()
    # A text is the usual one of its number if it has as many digits: no sign, no zeros before them, and not too many.
    num_digits = np.minimum(ids.str.len_bytes().to_numpy(), MAX_DIGITS + 1)
    is_usual = (numbers >= _LEAST[num_digits]) & (num_digits <= MAX_DIGITS)
    if not is_usual.all():
        hashed = (ids.hash(0) | pl.Series([1 << 63], dtype=pl.UInt64)).to_numpy()
        numbers = np.where(is_usual, numbers, hashed)
    # An odd factor permutes the 64-bit numbers, and spreads neighbouring ids evenly over the key files.
    return numbers * np.uint64(_GOLDEN)


def _append_keys(keys: NDArray[np.uint64], folder: Path) -> None:
    ordered = pl.Series(keys).sort().to_numpy()  # in half of NumPy's time
    limits = np.arange(1, NUM_KEY_FILES, dtype=np.uint64) << np.uint64(58)
    for number, piece in enumerate(np.split(ordered, np.searchsorted(ordered, limits))):
        if len(piece):
            with (folder / key_file(number)).open("ab") as file:
                file.write(piece.tobytes())


def key_file(number: int) -> str:
    """Name of the file with one range of keys."""
    return f"keys-{number:02d}.u64"


def find_duplicates(folders: list[Path]) -> tuple[int, NDArray[np.uint64]]:
    """Number of distinct ids, and the sorted keys of those that occur more than once."""
    num_distinct, repeated = 0, [np.empty(0, np.uint64)]
    for number in range(NUM_KEY_FILES):
        paths = [folder / key_file(number) for folder in folders]
        keys = np.concatenate(
            [np.fromfile(path, np.uint64) for path in paths if path.exists()] or repeated[:1]
        )
        keys.sort(kind="stable")  # merges what was written in order, in a fifth of the time of sorting anew
        again = keys[1:] == keys[:-1]
        num_distinct += len(keys) - int(again.sum())
        repeated.append(np.unique(keys[1:][again]))
    return num_distinct, np.concatenate(repeated)


def free_bytes(folder: Path) -> int:
    """Room left on the disk of a folder."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize
