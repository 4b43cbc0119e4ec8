"""Downloads against servers on the loopback that behave as badly as real ones."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_sets import Tiny, forking, tarball, together, write_pickles

from steep.data import declaration, downloads, known, load, sources
from steep.errors import DataError

BODY = np.random.default_rng(0).bytes(300_000)
MD5 = "md5:" + hashlib.md5(BODY).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    body = BODY
    ranges = True
    cut: int | None = None  # bytes after which a connection breaks
    log: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/set.tar.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.server.log.append(asked)
        start = int(asked[6:-1]) if asked and self.server.ranges else 0
        if start >= len(self.server.body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(self.server.body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        rest = self.server.body[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.server.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(("127.0.0.1", 0), Handler)
    running.log = []
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def file(server: Server, checksum: str = MD5) -> declaration.Download:
    return declaration.Download(url=server.url, checksum=checksum, file="set.tar.gz")


def test_a_whole_download(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = downloads.download(file(server), tmp_path, lambda *row: seen.append(row))
    assert path.read_bytes() == BODY
    assert seen[-1] == ("set.tar.gz", len(BODY), len(BODY))
    assert [entry.name for entry in tmp_path.iterdir()] == ["set.tar.gz"]
    downloads.download(file(server), tmp_path)  # already there: its checksum is right, nobody is asked
    assert len(server.log) == 1


def test_a_connection_that_breaks_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut = 100_000
    assert downloads.download(file(server), tmp_path).read_bytes() == BODY
    assert server.log == ["", "bytes=100000-", "bytes=200000-"]


def test_a_part_of_an_earlier_run_is_continued(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(BODY[:250_000])
    assert downloads.download(file(server), tmp_path).read_bytes() == BODY
    assert server.log == ["bytes=250000-"]


def test_a_part_that_was_whole_already(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(BODY)
    assert downloads.download(file(server), tmp_path).read_bytes() == BODY


def test_a_stale_part_costs_one_more_try(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(bytes(1000))
    assert downloads.download(file(server), tmp_path).read_bytes() == BODY
    assert server.log == ["bytes=1000-", ""]


def test_a_server_that_cannot_resume_starts_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "set.tar.gz.part").write_bytes(BODY[:1000])
    assert downloads.download(file(server), tmp_path).read_bytes() == BODY
    assert server.log == ["bytes=1000-"]


def test_another_file_is_refused_with_both_digests(server: Server, tmp_path: Path) -> None:
    server.body = BODY[:-1] + b"?"
    digest = hashlib.md5(server.body).hexdigest()
    with pytest.raises(DataError, match=f"expected {MD5}, found {digest}"):
        downloads.download(file(server), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_page(server: Server, tmp_path: Path) -> None:
    server.body = b""
    with pytest.raises(DataError, match=server.url):
        downloads.download(file(server), tmp_path)


def test_an_unreachable_server_fails_at_once(tmp_path: Path) -> None:
    closed = declaration.Download(url="http://127.0.0.1:9/a.tar.gz", checksum=MD5, file="a.tar.gz")
    start = time.monotonic()
    with pytest.raises(DataError, match=r"127\.0\.0\.1:9.*refused"):
        downloads.download(closed, tmp_path)
    assert time.monotonic() - start < 2


def test_a_silent_server_fails_after_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.tar.gz"
        start = time.monotonic()
        with pytest.raises(DataError, match="timed out"):
            downloads.download(declaration.Download(url=url, checksum=MD5, file="a.tar.gz"), tmp_path)
        assert time.monotonic() - start < 3


def test_a_set_comes_from_its_official_archive(
    cifar10: Tiny, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pickles(cifar10, tmp_path / "cifar-10-batches-py")
    server.body = tarball(tmp_path / "cifar-10-batches-py", tmp_path / "ball").read_bytes()
    server.cut = 20_000
    official = declaration.Download(
        url=server.url, checksum="md5:" + hashlib.md5(server.body).hexdigest(), file="cifar-10-python.tar.gz"
    )
    spec = known.KNOWN["cifar10"]
    monkeypatch.setitem(known.KNOWN, "cifar10", declaration.DataSet(**{**vars(spec), "official": (official,)}))
    root = tmp_path / "root"
    stored = sources.fetch("cifar10", root)
    assert stored["train"].origin == f"official: {server.url}"
    np.testing.assert_array_equal(load("cifar10", "train", root).images, cifar10.train)
    assert len(server.log) > 1


@forking
def test_two_fetches_at_once_both_succeed(
    cifar10: Tiny,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_pickles(cifar10, tmp_path / "cifar-10-batches-py")
    server.body = tarball(tmp_path / "cifar-10-batches-py", tmp_path / "ball").read_bytes()
    server.cut = 5_000  # many connections: time to get into each other's way
    official = declaration.Download(
        url=server.url, checksum="md5:" + hashlib.md5(server.body).hexdigest(), file="cifar-10-python.tar.gz"
    )
    spec = dataclasses.replace(known.KNOWN["cifar10"], official=(official,), package=None)
    monkeypatch.setitem(known.KNOWN, "cifar10", spec)
    root = tmp_path / "root"
    assert together(lambda _: sources.fetch("cifar10", root) and None, 3) == [0, 0, 0]
    np.testing.assert_array_equal(load("cifar10", "train", root).images, cifar10.train)
    assert server.log.count("") == 1  # the others waited instead of downloading it again
    assert not list(root.rglob("*.part"))
