"""How the fuzz tests run: a few dozen inputs each in the ordinary tests, as many as fit into the time of `make fuzz`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from driftline.types import DriftlineError

FEW, MANY = 40, 200
"""Inputs of one round, without and with a time to fill."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-seconds", type=float, default=0.0, help="time for all fuzz tests together; 0: one short round"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "fuzz: random input against the readers; `make fuzz` runs them for longer"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "fuzz" in item.path.parts:
            item.add_marker(pytest.mark.fuzz)


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Callable[[st.SearchStrategy[Any], Callable[[Any], object]], None]:
    """Feeds inputs to a function that must either return or raise DriftlineError; anything else is a finding."""
    num_tests = sum("fuzz" in item.keywords for item in request.session.items)
    seconds = float(request.config.getoption("--fuzz-seconds", 0.0)) / max(1, num_tests)

    def run(inputs: st.SearchStrategy[Any], check: Callable[[Any], object]) -> None:
        until = time.monotonic() + seconds
        round_number = num_inputs = 0

        @settings(
            max_examples=MANY if seconds else FEW,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(inputs)
        def one(value: Any) -> None:
            nonlocal num_inputs
            num_inputs += 1
            with contextlib.suppress(DriftlineError):
                check(value)

        while not round_number or time.monotonic() < until:
            seed(round_number)(one)()
            round_number += 1
        print(f"{request.node.name}: {num_inputs} inputs")

    return run
