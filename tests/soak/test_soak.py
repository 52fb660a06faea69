"""A short form of each part of `make soak`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.whole_server import WholeServer
from tests.soak import contract, disasters, hard_grammars, openai_suite
from tests.soak.aborter import Aborter
from tests.soak.fuzzer import Fuzzer
from tests.soak.soak_server import Watched, soak_server


@pytest.fixture(scope="module")
def suite() -> Path:
    try:
        return openai_suite.fetch(Path(sys.prefix) / "soak")
    except openai_suite.SuiteUnavailable as error:
        pytest.skip(f"the package index gives no sources of openai-python: {error}")


@pytest.fixture(scope="module")
def server() -> Iterator[WholeServer]:
    with soak_server() as running:
        yield running


@pytest.mark.parametrize("seed", [1, 2])
def test_random_requests_are_answered_as_described_or_refused(server: WholeServer, seed: int) -> None:
    fuzzer = Fuzzer(server.url, seed)
    watched = Watched(server)
    found = fuzzer.run(150)
    assert not found.faults, "\n".join(found.faults[:5])
    watched.check()


def test_clients_that_leave_at_any_moment_leave_nothing_behind(server: WholeServer) -> None:
    aborter = Aborter(server.url, 1, token_ids=300)
    aborter.run(100)
    watched = Watched(server)
    aborter.run(600)
    watched.check()


def test_schemathesis_finds_no_server_error_and_no_answer_outside_its_schema(server: WholeServer) -> None:
    assert contract.run(server.url, seconds=8, seed=1, phases="fuzzing") == []


def test_openai_pythons_own_tests_pass_but_for_those_that_must_be_refused(suite: Path) -> None:
    names = [word for name in openai_suite.models(suite) for word in ("--served-model-name", name)]
    with soak_server(*names) as server:
        outcome = openai_suite.run(suite, server.url)
    assert outcome.wrong == []
    assert outcome.passed > 80


def test_a_flood_is_served_or_refused() -> None:
    disasters.flood()


def test_an_engine_killed_under_load_hangs_nobody_and_comes_back() -> None:
    disasters.killed_engine()


def test_a_worker_killed_under_load_takes_no_other_client_with_it() -> None:
    disasters.killed_worker()


def test_sigterm_under_load_finishes_what_runs() -> None:
    disasters.terminated()


def test_hard_grammars_hold_up_no_stream_beside_them(server: WholeServer) -> None:
    watched = Watched(server)
    statuses, slowest, gap = hard_grammars.run(server, 1, rounds=1)
    assert min(statuses.values()) > 5, statuses
    assert slowest < 15  # a compilation's own bound, 5 s, and the wait for its turn
    assert gap < 3  # a fifth of a second on an idle machine
    watched.check(memory=80)  # grammars are remembered
