"""One browser, one page and one scripted model serve all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.e2e.page.running_page import CHROMIUM_FLAGS, RunningPage, Tab, chromium, missing, tab_on
from tests.e2e.page.scripted_model import RunningModel, ScriptedModel, scripted_model

OpenTab = Callable[..., AbstractContextManager[Tab]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser, two servers and other tests share two cores: what fails runs once more. The first traceback is printed
    even so, because each one so far was a race in the page or in its test."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if lacking := missing():
        assert not os.environ.get("FIRSTTOKEN_BROWSER_TESTS"), lacking
        pytest.skip(lacking)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def running_model() -> Iterator[RunningModel]:
    with scripted_model() as running:
        yield running


@pytest.fixture(scope="package")
def running_page(
    browser: Browser, running_model: RunningModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningPage]:
    with RunningPage(running_model.url, tmp_path_factory.mktemp("page")) as page:
        yield page


@pytest.fixture
def model(running_model: RunningModel) -> ScriptedModel:
    """As new."""
    running_model.model.reset()
    return running_model.model


@pytest.fixture
def open_tab(browser: Browser, running_page: RunningPage, model: ScriptedModel) -> OpenTab:
    """Opens a tab with a fresh profile."""
    running_page.forget_settings()
    return partial(tab_on, browser, running_page.url)


@pytest.fixture
def tab(open_tab: OpenTab) -> Iterator[Tab]:
    with open_tab() as opened:
        yield opened


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
