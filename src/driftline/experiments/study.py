"""The study: from figures, a stream and seeds to runs, drawings and `findings.json`.

In: recipes and a setting. Out: a directory with `runs/` (one a digest of its settings, shared between figures and between
invocations), `figures/` and `findings.json`. Everything that can be refused is refused before the first run starts.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftline.charts import save
from driftline.config import RunConfig
from driftline.engine.setup import Setup
from driftline.experiments.document import finding_json, row_json
from driftline.experiments.pool import Job, Pool
from driftline.experiments.recipe import Recipe
from driftline.experiments.results import Results, RunResult
from driftline.experiments.setting import SCALES, Scale, Setting
from driftline.experiments.verdicts import RULE
from driftline.streams.durable import replacing
from driftline.streams.open import open_stream
from driftline.types import DriftlineError, Stream
from driftline.version import VERSION

FORMAT = 1
FORMATS = ("png", "svg")

Json = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """Recipes on a stream with some seeds, and the directory for what comes of it."""

    recipes: Sequence[Recipe]
    setting: Setting
    num_seeds: int
    out: Path

    @staticmethod
    def open(
        recipes: Sequence[Recipe],
        stream: str,
        scale: str,
        num_seeds: int,
        out: Path,
        limit: int | None = None,
    ) -> Study:
        """A study of a stream by name; refuses what cannot work."""
        if num_seeds < 1:
            raise DriftlineError(f"seeds = {num_seeds}: must be at least 1")
        if scale not in SCALES:
            raise DriftlineError(f"scale = {scale!r}: choose one of {', '.join(SCALES)}")
        opened = _open(stream, SCALES[scale])
        return Study(
            recipes, Setting(opened, _full_name(opened, stream), SCALES[scale], 0, limit), num_seeds, out
        )

    # -- runs

    def configs(self, recipe: Recipe) -> dict[str, list[RunConfig]]:
        """Settings of a figure's runs: a list over seeds for each label."""
        seeds = [recipe.runs(replace(self.setting, seed=seed)) for seed in range(self.num_seeds)]
        return {label: [of[label] for of in seeds] for label in seeds[0]}

    def jobs(self) -> list[Job]:
        """Every distinct run of all figures, checked against the stream."""
        found: dict[str, Job] = {}
        for recipe in self.recipes:
            for label, configs in self.configs(recipe).items():
                for config in configs:
                    name = f"{recipe.name}: {label}, seed {config.seed}"
                    found.setdefault(config.digest(), self._job(name, config))
        return list(found.values())

    def _job(self, name: str, config: RunConfig) -> Job:
        setup = Setup(config, self.setting.stream)
        offline = config.learner == "supervised"
        num_steps = setup.plan().num_steps if offline else -(-setup.num_samples // config.batch_size)
        seen = num_steps * config.batch_size
        replayed = 0 if offline or config.replay == "none" else config.replay_ratio
        # A backward pass costs about twice a forward pass.
        cost = seen * config.num_members * ((not offline) + 3 * config.gd_steps * (1 + replayed))
        job = Job(name, config, self.out / "runs" / config.digest(), num_steps, cost)
        self._refuse_foreign(job)
        return job

    def _refuse_foreign(self, job: Job) -> None:
        """A finished run counts only if it was made on this very stream."""
        if not job.is_finished:
            return
        made_on = RunResult(job.out).summary["stream"]["fingerprint"]
        if made_on != self.setting.stream.fingerprint:
            raise DriftlineError(
                f"{job.out} was run before the stream {self.setting.name} was last changed; choose another --out or remove it"
            )

    def execute(self, num_parallel: int, show: Callable[[Pool], None], num_processes: int = 1) -> Pool:
        """Run what is missing, so many runs at a time, each with so many processes."""
        threads = max(1, num_cores() // (num_parallel * num_processes))
        pool = Pool(self.jobs(), num_parallel, threads, num_processes)
        with claimed(self.out):
            pool.run(show)
        for job in pool.jobs:
            self._refuse_foreign(job)
        return pool

    # -- what came of it

    def results(self, recipe: Recipe) -> Results:
        """A figure's finished runs."""
        runs = {
            label: [RunResult(self.out / "runs" / config.digest()) for config in configs]
            for label, configs in self.configs(recipe).items()
        }
        scale = self.setting.scale
        scoring = scale.batch_scoring if recipe.compares == "batch sizes" else scale.scoring
        return Results(runs, self.setting.name, scoring)

    def conclude(self, failed: Mapping[str, str], conditions: Json) -> Json:
        """Draw every figure, judge every finding, write `findings.json`."""
        figures = {recipe.name: self._figure(recipe, failed) for recipe in self.recipes}
        setting = self.setting
        document = {
            "format": FORMAT,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "driftline": VERSION,
            "stream": {
                "name": setting.stream.name,
                "fingerprint": setting.stream.fingerprint,
                "samples": setting.num_samples,
                "validation": len(setting.stream.validation),
                "classes": len(setting.stream.classes),
            },
            "scale": setting.scale.name,
            "seeds": list(range(self.num_seeds)),
            "conditions": conditions,
            "rule": RULE,
            "figures": figures,
        }
        self.out.mkdir(parents=True, exist_ok=True)
        with replacing(self.out / "findings.json") as temporary:
            temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        return document

    def _figure(self, recipe: Recipe, failed: Mapping[str, str]) -> Json:
        configs = self.configs(recipe)
        digests = {label: [c.digest() for c in of] for label, of in configs.items()}
        missing = {
            f"{label}, seed {seed}": failed[digest]
            for label, of in digests.items()
            for seed, digest in enumerate(of)
            if digest in failed
        }
        entry: Json = {
            "title": recipe.title,
            "caption": recipe.caption,
            "width": recipe.width,
            "runs": digests,
            "failed": missing,
        }
        if missing:
            return entry | {"scoring": None, "files": [], "table": [], "findings": []}
        results = self.results(recipe)
        drawn = save(recipe.draw(results), self.out / "figures" / recipe.name, FORMATS, width=recipe.width)
        return entry | {
            "scoring": results.scoring,
            "files": [str(path.relative_to(self.out)) for path in drawn],
            "table": [row_json(label, of, results.scoring) for label, of in results.runs.items()],
            "findings": [finding_json(finding) for finding in recipe.findings(results)],
        }


def num_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _open(stream: str, scale: Scale) -> Stream:
    """The stream; the paper's scale needs the paper's kind of stream."""
    how = (
        "build it with `driftline build METADATA --format yfcc --images ROOT --image-size 256 --out streams/cloc` "
        "and give --stream streams/cloc; --scale quick works on any stream"
    )
    is_world = stream == "world" or stream.startswith("world:")
    if scale.fewest_samples and is_world:
        raise DriftlineError(f"scale = full with stream = {stream}: the paper's settings are for CLOC; {how}")
    if scale.fewest_samples and not Path(stream, "stream.json").exists():
        raise DriftlineError(f"scale = full: there is no stream in {stream}; {how}")
    opened = open_stream(stream)
    if len(opened.train) < scale.fewest_samples:
        raise DriftlineError(
            f"scale = full: the stream {stream} has {len(opened.train)} samples, fewer than the {scale.fewest_samples} between two "
            "steps of the paper's rate search; use --scale quick"
        )
    return opened


def _full_name(stream: Stream, given: str) -> str:
    """One name for one stream, so that its runs are found again: world and world:50000:0 are the same."""
    return stream.name if given.startswith("world") else str(Path(given).resolve())


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Hold a directory, so that two studies do not start the same runs."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DriftlineError(
                f"{out} is in use by another `driftline reproduce`; wait for it or choose another --out"
            ) from None
        yield
