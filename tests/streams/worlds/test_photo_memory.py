"""What a thread remembers of its last question never changes an answer."""

from __future__ import annotations

import threading

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.streams.worlds.photographers import Photographers

LENGTH = 3000
WORLDS = [Photographers(LENGTH, seed=0), Photographers(LENGTH, seed=1), Photographers(LENGTH - 1, seed=0)]
ALL = [world._photos(np.arange(LENGTH - 1)) for world in WORLDS]

questions = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, LENGTH - 2), max_size=12)), min_size=2, max_size=8
)


@given(questions)
@settings(max_examples=60, deadline=None)
def test_an_answer_does_not_depend_on_the_questions_before(asked):
    for which, ordinals in asked:
        at = np.array(ordinals, dtype=np.int64)
        for subset in (at, np.unique(at), np.unique(at)[::2]):
            for column, whole in zip(WORLDS[which].photos(subset), ALL[which], strict=True):
                assert np.array_equal(column, whole[subset])


def test_threads_do_not_see_each_other_s_questions():
    wrong = []

    def ask(which: int) -> None:
        rng = np.random.default_rng(which)
        for _ in range(50):
            at = np.unique(rng.integers(0, LENGTH - 1, 20))
            for column, whole in zip(WORLDS[which].photos(at), ALL[which], strict=True):
                if not np.array_equal(column, whole[at]):
                    wrong.append((which, at))

    threads = [threading.Thread(target=ask, args=(which,)) for which in (0, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
