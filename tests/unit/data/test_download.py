"""Downloads from a real server on loopback that breaks off, refuses, and forgets how to resume."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from polyphrase.data.download import download
from polyphrase.errors import BadInput

BODY = bytes(range(256)) * 1000
SHA = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY; `breaks` says after how many bytes each next answer breaks off."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.breaks: list[int] = []
        self.status = 0
        self.ranges = True
        self.body = BODY
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.asked.append(asked)
        if self.server.status:
            self.send_error(self.server.status)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if start and start >= len(self.server.body):
            self.send_error(416)
            return
        rest = self.server.body[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.server.breaks.pop(0)] if self.server.breaks else rest)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def fetch(server: Server, path: Path, sha: str = SHA) -> Path:
    return download(server.url, path, sha, attempts=2, wait=0.0, timeout=5)


def test_whole(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert fetch(server, path).read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]
    fetch(server, path)
    assert server.asked == [None]  # what is there and has the hash is not asked for again


def test_an_interrupted_transfer_goes_on_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.breaks = [1000, 50_000, 1]
    assert fetch(server, tmp_path / "file").read_bytes() == BODY
    assert server.asked == [None, "bytes=1000-", "bytes=51000-", "bytes=51001-"]


def test_a_later_run_goes_on_too(server: Server, tmp_path: Path) -> None:
    server.breaks = [70_000, 0, 0]
    with pytest.raises(BadInput, match="the 70,000 bytes that arrived are kept"):
        fetch(server, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert fetch(server, tmp_path / "file").read_bytes() == BODY
    assert server.asked[-1] == "bytes=70000-"


def test_a_server_without_ranges_sends_the_whole_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.breaks = [70_000]
    assert fetch(server, tmp_path / "file").read_bytes() == BODY


def test_a_killed_run_that_had_all_bytes(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(BODY)
    assert fetch(server, tmp_path / "file").read_bytes() == BODY


@pytest.mark.parametrize("stale", [b"of another file", b"x" * (len(BODY) + 1)])
def test_the_part_of_another_file_is_thrown_away(
    server: Server, tmp_path: Path, stale: bytes
) -> None:
    (tmp_path / "file.part").write_bytes(stale)
    assert fetch(server, tmp_path / "file").read_bytes() == BODY


def test_other_bytes_are_not_kept(server: Server, tmp_path: Path) -> None:
    server.body = BODY[:-1] + b"!"
    with pytest.raises(BadInput, match="sent other bytes than expected"):
        fetch(server, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_altered_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"altered")
    assert fetch(server, tmp_path / "file").read_bytes() == BODY


def test_a_server_that_refuses(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(BadInput, match="the server answers 404"):
        fetch(server, tmp_path / "file")
    assert len(server.asked) == 1
    server.status = 503
    with pytest.raises(BadInput, match="the server answers 503"):
        fetch(server, tmp_path / "file")
    assert len(server.asked) == 3


def test_no_server(tmp_path: Path) -> None:
    with Server() as server:
        url = server.url
    with pytest.raises(BadInput, match=r"cannot be fetched .*check the network"):
        download(url, tmp_path / "file", SHA, attempts=1)
