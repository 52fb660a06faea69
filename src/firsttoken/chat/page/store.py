"""Chats on disk: one SQLite file, one connection, one thread. Users, threads, their steps and elements.

A step or an element is kept as the JSON that the page shows; only what is searched, sorted or joined has a column.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from firsttoken.errors import ConfigError

Row = dict[str, Any]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS users (
  id TEXT PRIMARY KEY, identifier TEXT UNIQUE NOT NULL, created TEXT NOT NULL, settings TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS threads (
  id TEXT PRIMARY KEY, user_id TEXT REFERENCES users(id), name TEXT, created TEXT NOT NULL, updated REAL NOT NULL,
  metadata TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS threads_of_user ON threads(user_id, updated);
CREATE TABLE IF NOT EXISTS steps (
  id TEXT PRIMARY KEY, thread_id TEXT NOT NULL REFERENCES threads(id) ON DELETE CASCADE,
  created TEXT NOT NULL, output TEXT NOT NULL, content TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS steps_of_thread ON steps(thread_id, created);
CREATE TABLE IF NOT EXISTS elements (
  id TEXT PRIMARY KEY, thread_id TEXT NOT NULL REFERENCES threads(id) ON DELETE CASCADE, for_id TEXT,
  content TEXT NOT NULL, file BLOB
);
CREATE INDEX IF NOT EXISTS elements_of_thread ON elements(thread_id);
"""
_NAME = 80  # characters of a question that become its thread's name


class Store:
    """Every method is one transaction. Calls must come from one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError where the file cannot be opened or is no such database."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)  # other people of this machine do not read along
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
            try:
                self._db.row_factory = sqlite3.Row
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.execute("PRAGMA foreign_keys=ON")
                self._db.executescript(_SCHEMA)
            except sqlite3.Error:
                self._db.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"The chats cannot be kept in {path} ({error}); name another --data-dir.") from error

    def close(self) -> None:
        self._db.close()

    # users

    def user(self, identifier: str) -> Row:
        """Made when it is not there yet."""
        self._db.execute(
            "INSERT INTO users (id, identifier, created) VALUES (?, ?, ?) ON CONFLICT (identifier) DO NOTHING",
            (str(uuid4()), identifier, _now()),
        )
        row = self._one("SELECT * FROM users WHERE identifier = ?", identifier)
        assert row is not None
        return row | {"settings": json.loads(row["settings"])}

    def keep_settings(self, identifier: str, settings: Row) -> None:
        """What a new chat of this user begins with."""
        self._db.execute("UPDATE users SET settings = ? WHERE identifier = ?", (_json(settings), identifier))

    # threads

    def author(self, thread_id: str) -> str | None:
        row = self._one("SELECT u.identifier FROM threads t JOIN users u ON u.id = t.user_id WHERE t.id = ?", thread_id)
        return None if row is None else str(row["identifier"])

    def update_thread(
        self, thread_id: str, *, name: str | None = None, user_id: str | None = None, metadata: Row | None = None
    ) -> None:
        """None leaves a value as it is; the thread is made when it is not there yet."""
        self._ensure(thread_id)
        if name is not None:
            self._db.execute("UPDATE threads SET name = ? WHERE id = ?", (short_name(name), thread_id))
        if user_id is not None:
            self._db.execute("UPDATE threads SET user_id = ? WHERE id = ?", (user_id, thread_id))
        if metadata is not None:
            self._db.execute("UPDATE threads SET metadata = ? WHERE id = ?", (_json(metadata), thread_id))

    def delete_thread(self, thread_id: str) -> None:
        self._db.execute("DELETE FROM threads WHERE id = ?", (thread_id,))

    def thread(self, thread_id: str) -> Row | None:
        """With its steps, oldest first, and its elements without their files."""
        found = self._one(
            "SELECT t.*, u.identifier FROM threads t LEFT JOIN users u ON u.id = t.user_id WHERE t.id = ?", thread_id
        )
        if found is None:
            return None
        steps = self._db.execute("SELECT content FROM steps WHERE thread_id = ? ORDER BY created, rowid", (thread_id,))
        elements = self._db.execute("SELECT content FROM elements WHERE thread_id = ? ORDER BY rowid", (thread_id,))
        return {
            **_thread(found),
            "userIdentifier": found["identifier"],
            "metadata": json.loads(found["metadata"]),
            "steps": [json.loads(row["content"]) for row in steps.fetchall()],
            "elements": [json.loads(row["content"]) for row in elements.fetchall()],
        }

    def threads(self, user_id: str, *, first: int, cursor: str | None, search: str | None) -> tuple[list[Row], bool]:
        """A user's, the last used first, and whether there are more. `search` is looked for in names and messages."""
        where, values = ["t.user_id = ?"], [user_id]
        if cursor:
            where.append("(t.updated, t.id) < (SELECT updated, id FROM threads WHERE id = ?)")
            values.append(cursor)
        for word in (search or "").split():
            pattern = "%" + word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            where.append(
                "(t.name LIKE ? ESCAPE '\\' OR EXISTS"
                " (SELECT 1 FROM steps s WHERE s.thread_id = t.id AND s.output LIKE ? ESCAPE '\\'))"
            )
            values += [pattern, pattern]
        rows = self._db.execute(
            f"SELECT t.* FROM threads t WHERE {' AND '.join(where)} ORDER BY t.updated DESC, t.id DESC LIMIT ?",
            (*values, first + 1),
        ).fetchall()
        return [_thread(row) for row in rows[:first]], len(rows) > first

    # steps and elements

    def put_step(self, step: Row) -> None:
        """Made or replaced; its thread becomes the last used one."""
        thread_id = step["threadId"]
        self._ensure(thread_id)
        created = step.get("createdAt") or _now()
        self._db.execute(
            "INSERT INTO steps (id, thread_id, created, output, content) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET output = excluded.output, content = excluded.content"
            " WHERE thread_id = excluded.thread_id",  # a browser chooses its ids: none reaches another's message
            (step["id"], thread_id, created, step.get("output") or "", _json(step)),
        )
        self._db.execute("UPDATE threads SET updated = ? WHERE id = ?", (time.time(), thread_id))

    def delete_step(self, step_id: str) -> None:
        """With all that hangs on it."""
        self._db.execute("DELETE FROM elements WHERE for_id = ?", (step_id,))
        self._db.execute("DELETE FROM steps WHERE id = ?", (step_id,))

    def put_element(self, element: Row, file: bytes | None = None) -> None:
        """Made or replaced; without `file` the one that is kept stays."""
        self._ensure(element["threadId"])
        self._db.execute(
            "INSERT INTO elements (id, thread_id, for_id, content, file) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id)"
            " DO UPDATE SET for_id = excluded.for_id, content = excluded.content, file = COALESCE(excluded.file, file)"
            " WHERE thread_id = excluded.thread_id",
            (element["id"], element["threadId"], element.get("forId"), _json(element), file),
        )

    def element(self, thread_id: str, element_id: str) -> Row | None:
        row = self._one("SELECT content FROM elements WHERE id = ? AND thread_id = ?", element_id, thread_id)
        return None if row is None else dict(json.loads(row["content"]))

    def file(self, element_id: str) -> tuple[str, bytes] | None:
        """An attachment's thread and bytes."""
        row = self._one("SELECT thread_id, file FROM elements WHERE id = ? AND file IS NOT NULL", element_id)
        return None if row is None else (row["thread_id"], row["file"])

    def delete_element(self, element_id: str) -> None:
        self._db.execute("DELETE FROM elements WHERE id = ?", (element_id,))

    def _ensure(self, thread_id: str) -> None:
        self._db.execute(
            "INSERT INTO threads (id, created, updated) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (thread_id, _now(), time.time()),
        )

    def _one(self, query: str, *values: str) -> Row | None:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else dict(row)


def short_name(text: str) -> str:
    """A question as the name of its thread: one line, cut at a fitting length."""
    line = " ".join(text.split())
    return line if len(line) <= _NAME else line[: _NAME - 1].rstrip() + "…"


def _thread(row: sqlite3.Row | Row) -> Row:
    """In the page's own terms. It groups by `createdAt`, and people look for what they last used."""
    used = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(row["updated"])) + "Z"
    return {"id": row["id"], "name": row["name"], "userId": row["user_id"], "createdAt": used, "tags": None}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() // 1000 % 1_000_000:06d}Z"


def _json(value: Row) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
