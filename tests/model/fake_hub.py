"""A model hub on this machine that speaks Hugging Face's protocol, as far as downloads need it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GATED = "owner/gated"


@dataclass
class FakeHub:
    """One repository, `owner/name`.

    After `stall_after` bytes of a file it sends no more, and sets `stalled`; once. After each of `cuts` it hangs up.
    """

    files: Mapping[str, bytes]
    stall_after: int | None = None
    cuts: list[int] = field(default_factory=list)
    knows_ranges: bool = True
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)  # other paths: type and text
    url: str = ""
    stalled: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # files that were sent, with the range asked for


@contextlib.contextmanager
def fake_hub(files: Mapping[str, bytes], stall_after: int | None = None) -> Iterator[FakeHub]:
    hub = FakeHub(files, stall_after)

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        if path in self.served.pages:
            kind, text = self.served.pages[path]
            self._send(200, text.encode(), {"Content-Type": kind}, body)
        elif GATED in path:
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"}, body)
        elif path.startswith("/api/models/owner/name/tree/"):
            tree = [self._entry(name, content) for name, content in self.served.files.items()]
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, body)
        elif path.startswith("/api/models/owner/name"):
            listed = [{"rfilename": name, "size": len(content)} for name, content in self.served.files.items()]
            card = {"id": "owner/name", "sha": COMMIT, "siblings": listed, "tags": [], "private": False}
            self._send(200, json.dumps(card).encode(), {"Content-Type": "application/json"}, body)
        elif path.startswith("/owner/name/resolve/"):
            self._file(path.split("/", 5)[5], body)
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)

    def _entry(self, name: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        return {"type": "file", "path": name, "size": len(content), "oid": digest[:40]}

    def _file(self, name: str, body: bool) -> None:
        content = self.served.files[name]
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
        wanted = self.headers.get("Range") if self.served.knows_ranges else None
        if body:
            self.served.asked.append((name, wanted))
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206 if start else 200, content[start:], headers, body)

    def _send(self, status: int, content: bytes, headers: Mapping[str, str], body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not body:
            return
        hub = self.served
        if hub.stall_after is not None and len(content) > hub.stall_after:
            self.wfile.write(content[: hub.stall_after])
            self.wfile.flush()
            hub.stall_after = None
            self.close_connection = True
            hub.stalled.set()
            hub.closing.wait(60)
            return
        if hub.cuts and len(content) > hub.cuts[0]:
            content = content[: hub.cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(content)
