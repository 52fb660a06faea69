"""Chats on disk."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firsttoken.chat.page.store import Store, short_name
from firsttoken.errors import ConfigError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "folder" / "chats.sqlite3")
    yield opened
    opened.close()


def step(
    id_: str, thread: str, output: str, kind: str = "user_message", at: str = "2026-01-01T00:00:00Z"
) -> dict[str, Any]:
    return {"id": id_, "threadId": thread, "output": output, "type": kind, "createdAt": at, "metadata": {}}


def talk(store: Store, user: str, thread: str, *texts: str) -> None:
    store.update_thread(thread, name=texts[0], user_id=store.user(user)["id"])
    for number, text in enumerate(texts):
        store.put_step(step(f"{thread}-{number}", thread, text))


def found(store: Store, search: str | None, user: str = "ann") -> list[str]:
    threads, _ = store.threads(store.user(user)["id"], first=10, cursor=None, search=search)
    return [thread["id"] for thread in threads]


def test_a_thread_comes_back_with_its_steps_in_order(store: Store) -> None:
    talk(store, "ann", "t", "你好 🎉", "hello")
    store.put_element({"id": "e", "threadId": "t", "forId": "t-0", "props": {"a": 1}}, b"file")
    thread = store.thread("t")
    assert thread is not None
    assert [one["output"] for one in thread["steps"]] == ["你好 🎉", "hello"]
    assert thread["elements"] == [{"id": "e", "threadId": "t", "forId": "t-0", "props": {"a": 1}}]
    assert (thread["userIdentifier"], store.author("t")) == ("ann", "ann")
    assert store.file("e") == ("t", b"file")


def test_search_finds_every_word_in_names_and_messages_and_takes_signs_as_they_are(store: Store) -> None:
    talk(store, "ann", "one", "Herons", "they stand in water, 100%")
    talk(store, "ann", "two", "Ibises", "they_walk")
    assert found(store, "herons WATER") == ["one"]
    assert found(store, "they") == ["two", "one"]
    assert found(store, "0%") == ["one"]
    assert found(store, "y_w") == ["two"]
    assert found(store, "%") == ["one"]
    assert found(store, "they", user="bob") == []


def test_threads_come_in_pages_the_last_used_first(store: Store) -> None:
    for number in range(5):
        talk(store, "ann", f"t{number}", f"question {number}")
    store.put_step(step("later", "t1", "more"))
    user = store.user("ann")["id"]
    first, more = store.threads(user, first=2, cursor=None, search=None)
    assert ([thread["id"] for thread in first], more) == (["t1", "t4"], True)
    rest, more = store.threads(user, first=10, cursor="t4", search=None)
    assert ([thread["id"] for thread in rest], more) == (["t3", "t2", "t0"], False)


def test_deleting_takes_along_all_that_hangs_on_it(store: Store) -> None:
    talk(store, "ann", "t", "a", "b")
    store.put_element({"id": "e", "threadId": "t", "forId": "t-1"}, b"x")
    store.delete_step("t-1")
    assert store.file("e") is None
    store.put_element({"id": "f", "threadId": "t", "forId": "t-0"}, b"x")
    store.delete_thread("t")
    assert store.thread("t") is None
    assert store.file("f") is None


def test_no_id_that_a_browser_makes_up_reaches_another_threads_messages(store: Store) -> None:
    talk(store, "ann", "hers", "secret")
    talk(store, "bob", "his", "mine")
    store.put_step(step("hers-0", "his", "overwritten"))
    store.put_element({"id": "e", "threadId": "hers", "forId": "hers-0"}, b"hers")
    store.put_element({"id": "e", "threadId": "his", "forId": "his-0"}, b"his")
    thread = store.thread("hers")
    assert thread is not None
    assert thread["steps"][0]["output"] == "secret"
    assert store.file("e") == ("hers", b"hers")


def test_only_its_user_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    Store(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_no_database_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    path.write_text("something else, and long enough to be no header of SQLite's " * 20)
    with pytest.raises(ConfigError, match="--data-dir"):
        Store(path)


def test_a_name_is_one_line_of_fitting_length() -> None:
    assert short_name(" a\n  b ") == "a b"
    assert len(short_name("word " * 100)) <= 80
