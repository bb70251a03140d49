"""The journal of an unfinished shard: what is whole comes back, what is torn is fetched again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from driftline.streams.images.journal import journalled
from driftline.streams.images.sources import Missing


def test_a_journal_with_a_torn_or_damaged_end_gives_what_is_whole(tmp_path: Path) -> None:
    outcomes = [b"one", Missing("gone"), b"", Missing("slow", passing=True), b"five" * 100]
    journal = tmp_path / "journal"
    assert list(journalled(journal, lambda start: iter(outcomes[start:]))) == outcomes
    whole = journal.read_bytes()
    for size in range(len(whole)):
        journal.write_bytes(whole[:size] + b"\xff" * (size % 3))
        asked: list[int] = []

        def rest(start: int, asked: list[int] = asked) -> Iterator[bytes | Missing]:
            asked.append(start)
            return iter(outcomes[start:])

        assert list(journalled(journal, rest)) == outcomes
        assert asked[0] < 5
        assert journal.read_bytes() == whole
