"""Replay buffer sizes: 0.1 %, 10 % and 100 % of the stream, and ADRep, which finds a size as it goes; cosine rate.

    driftline reproduce buffer-size --stream world --scale quick

Duration: a little more than a minute a seed on two quiet cores.

The paper saw (R = 40 K, 4 M, 39 M of 39 M photos): the best size changes over time, small early and larger later. With R too
small the training accuracy on replayed photos is far above that on the stream (overfitting the buffer); with R too large it
is far below. ADRep, which follows that difference, is near the best fixed size throughout and lets R grow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from driftline.charts import Series, panels
from driftline.config import RunConfig
from driftline.experiments.panels import buffer_panel, online_panel, training_panel
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.results import Results
from driftline.experiments.setting import Setting
from driftline.experiments.verdicts import Check, Finding, Measure, constant, greater, near

SMALL, MIDDLE, LARGE, ADREP = "R 0.1 %", "R 10 %", "R 100 %", "ADRep"
FIXED = (SMALL, MIDDLE, LARGE)
THIRDS = {"first third": (0.0, 1 / 3), "second third": (1 / 3, 2 / 3), "last third": (2 / 3, 1.0)}


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """Three fixed sizes and ADRep, which starts from the smallest."""
    sizes = (setting.small_buffer, setting.scale.middle_buffer, setting.scale.large_buffer)
    fixed = {
        label: setting.online(schedule="cosine", buffer_size=size)
        for label, size in zip(FIXED, sizes, strict=True)
    }
    return fixed | {
        ADREP: setting.online(schedule="cosine", buffer_size=setting.small_buffer, adaptive_buffer=True)
    }


def draw(results: Results) -> Drawing:
    """The paper's two figures in one: fixed sizes with their training accuracies, and ADRep beside them."""
    series = Series(results.labels)
    fixed = results.only(*FIXED)
    return panels(
        {
            "(a) Average online accuracy (↑)": online_panel(fixed, series),
            "(b) Training accuracy on the stream": training_panel(
                fixed, series, "acc_stream", "acc_Stream (training)"
            ),
            "(c) Training accuracy on replay": training_panel(
                fixed, series, "acc_replay", "acc_Rep (training)"
            ),
            "(d) ADRep beside fixed sizes (↑)": online_panel(results, series),
            "(e) Buffer size over time (first seed)": buffer_panel(results, series),
        }
    )


def findings(results: Results) -> list[Finding]:
    """The best size moves; ADRep keeps near it and grows; the training accuracies tell why."""
    return [
        best_size_moves(results),
        Finding(
            "adrep-near-best",
            "ADRep's online accuracy is near that of the best fixed size in every third of the stream.",
            "ADRep was near-optimal throughout training.",
            tuple(_adrep_near_best(results, name) for name in THIRDS),
        ),
        Finding(
            "training-accuracy-tells",
            "Late in the stream, acc_Rep is above acc_Stream when R is small and below it when R is large.",
            "acc_Rep ≫ acc_Stream with R = 40 K at late steps; acc_Rep ≪ acc_Stream with 4 M and 39 M.",
            (
                greater(
                    f"acc_Rep over acc_Stream, {SMALL}",
                    results.trained(SMALL, "acc_replay", 2 / 3),
                    results.trained(SMALL, "acc_stream", 2 / 3),
                ),
                *(
                    greater(
                        f"acc_Stream over acc_Rep, {label}",
                        results.trained(label, "acc_stream", 2 / 3),
                        results.trained(label, "acc_replay", 2 / 3),
                    )
                    for label in (MIDDLE, LARGE)
                ),
            ),
        ),
        Finding(
            "adrep-grows",
            "ADRep lets the buffer grow over time.",
            "R rose step by step over the stream.",
            (_growth(results),),
        ),
    ]


def best_size_moves(results: Results) -> Finding:
    """Whether the size that is best in the first third is beaten in the last, and the other way round."""
    early, late = (
        {label: results.online(label, *THIRDS[name]) for label in FIXED}
        for name in ("first third", "last third")
    )
    best_early, best_late = _best(early), _best(late)
    return Finding(
        "best-size-moves",
        "The fixed buffer size with the best online accuracy early in the stream is not the best late in it.",
        "The smallest buffer was best early, larger ones later; the largest was not always best.",
        _crossing(early, late, best_early, best_late),
        f"Best in the first third: {best_early}; best in the last third: {best_late}.",
    )


def _crossing(
    early: Mapping[str, Sequence[Measure]],
    late: Mapping[str, Sequence[Measure]],
    best_early: str,
    best_late: str,
) -> tuple[Check, ...]:
    """Two comparisons that must both hold for the best size to have moved."""
    if best_early == best_late:
        # The same size is best twice: is it clearly ahead of the runner-up both times?
        return tuple(
            greater(
                f"another size over {best_early}, {name}",
                part[_best(part, without=best_early)],
                part[best_early],
            )
            for name, part in (("first third", early), ("last third", late))
        )
    return (
        greater(f"{best_early} over {best_late}, first third", early[best_early], early[best_late]),
        greater(f"{best_late} over {best_early}, last third", late[best_late], late[best_early]),
    )


def _best(part: Mapping[str, Sequence[Measure]], without: str | None = None) -> str:
    return max(
        (label for label in part if label != without),
        key=lambda label: np.mean([m.value for m in part[label]]),
    )


def _adrep_near_best(results: Results, third: str) -> Check:
    part = {label: results.online(label, *THIRDS[third]) for label in FIXED}
    best = _best(part)
    return near(f"ADRep near {best}, {third}", results.online(ADREP, *THIRDS[third]), part[best])


def _growth(results: Results) -> Check:
    """Doublings between the first size and the last."""
    doublings = []
    for run in results.runs[ADREP]:
        size = run.curves["buffer_size"].to_numpy()
        doublings.append(Measure(math.log2(size[-1] / size[0])))
    return greater("doublings of R from start to end", doublings, constant(0.0, doublings), unit="doublings")


RECIPE = Recipe(
    "buffer-size",
    "Replay buffer size",
    "R is the size of the FIFO buffer as a share of the stream (0.1 %, but at least a batch). ADRep starts at the smallest. "
    "acc_Stream and acc_Rep are accuracies of the training batches before the update.",
    runs,
    draw,
    findings,
)
