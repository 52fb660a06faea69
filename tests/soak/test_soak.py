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


def test_random_requests_are_answered_as_described_or_refused(server: WholeServer) -> None:
    fuzzer = Fuzzer(server.url, seed=1)
    fuzzer.run(30)
    watched = Watched(server)
    found = fuzzer.run(200)
    assert not found.faults, "\n".join(found.faults[:5])
    watched.check()


def test_clients_that_leave_at_any_moment_leave_nothing_behind(server: WholeServer) -> None:
    aborter = Aborter(server.url, 1, token_ids=300)
    aborter.run(100)
    watched = Watched(server)
    aborter.run(300)
    watched.check()


def test_schemathesis_finds_no_server_error_and_no_answer_outside_its_schema(server: WholeServer) -> None:
    assert contract.run(server.url, seconds=5, seed=1, phases="fuzzing") == []


def test_openai_pythons_own_tests_pass_but_for_those_that_must_be_refused(suite: Path) -> None:
    names = [word for name in openai_suite.models(suite) for word in ("--served-model-name", name)]
    with soak_server(*names) as server:
        outcome = openai_suite.run(suite, server.url, only="strict")
    assert outcome.wrong == []
    assert outcome.passed > 40


def test_floods_kills_and_sigterm_under_load_hang_nobody() -> None:
    with disasters.doomed_server() as doomed:
        disasters.flood(doomed)
        disasters.killed_engine(doomed)
        disasters.killed_worker(doomed)
        disasters.terminated(doomed)


def test_hard_grammars_hold_up_no_stream_beside_them(server: WholeServer) -> None:
    watched = Watched(server)
    statuses, slowest, gap = hard_grammars.run(server, 1, rounds=1)
    assert min(statuses.values()) > 5, statuses
    assert slowest < 15  # a compilation's own bound, 5 s, and the wait for its turn
    assert gap < 3  # a fifth of a second on an idle machine
    watched.check(memory=80)  # grammars are remembered
