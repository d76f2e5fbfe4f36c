from __future__ import annotations

import hashlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from workbench.data import registry
from workbench.errors import DataError, MissingData, UsageError

BODY = b"0.5,1,2\n" * 5000
SHA = hashlib.sha256(BODY).hexdigest()


class Server:
    """Serves BODY from loopback; `mode` spoils the answer, `pause_s` stretches it."""

    def __init__(self) -> None:
        self.mode = "whole"
        self.pause_s = 0.0
        self.requests = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                if outer.mode == "absent":
                    self.send_error(404)
                    return
                body = BODY.replace(b"5", b"6") if outer.mode == "other" else BODY
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body[: len(body) // 2])
                    self.wfile.flush()
                    time.sleep(outer.pause_s)
                    if outer.mode != "half":
                        self.wfile.write(body[len(body) // 2 :])
                except OSError:
                    pass

            def log_message(self, *args: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/some.csv"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server():
    running = Server()
    yield running
    running.close()


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A project with one registered file, an empty cache and an empty mirror."""
    (tmp_path / "root" / "data").mkdir(parents=True)
    (tmp_path / "mirror").mkdir()
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WORKBENCH_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.delenv("WORKBENCH_OFFLINE", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(registry, "_unreachable", {})
    return tmp_path


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def register(world: Path, url: str = "http://127.0.0.1:9/some.csv", **changes: object) -> registry.ExternalFile:
    fields = {"repository": "some/one", "commit": "abc123", "path": "a/some.csv", "bytes": len(BODY), "sha256": SHA, "licence": "MIT", "url": url} | changes
    lines = [f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"' for name, value in fields.items() if value is not None]
    (world / "root" / "data" / "external.toml").write_text("version = 1\n[[file]]\n" + "\n".join(lines) + "\n")
    return registry.find("some/one", "a/some.csv")


def put(folder: Path, file: registry.ExternalFile, body: bytes = BODY) -> Path:
    path = folder / file.key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def test_the_cache_comes_first_then_the_mirror_then_the_network(world, server):
    file = register(world, server.url)
    mirrored = put(world / "mirror", file)
    assert registry.fetch(file) == mirrored
    assert not (world / "cache").exists()  # read in place, not copied
    cached = put(world / "cache", file)
    assert registry.fetch(file) == cached
    cached.unlink()
    mirrored.unlink()
    assert registry.locate(file) is None
    assert server.requests == 0
    assert registry.fetch(file) == cached
    assert cached.read_bytes() == BODY
    assert server.requests == 1
    assert [path.name for path in cached.parent.iterdir()] == ["some.csv"]
    registry.fetch(file)
    assert server.requests == 1


@pytest.mark.parametrize("place", ["cache", "mirror"])
def test_a_wrong_file_is_refused_with_both_sums(world, place):
    file = register(world)
    path = put(world / place, file, BODY[:-1])
    with pytest.raises(DataError) as caught:
        registry.fetch(file)
    message = str(caught.value)
    assert str(path) in message
    assert SHA in message
    assert hashlib.sha256(BODY[:-1]).hexdigest() in message


def test_a_sum_is_computed_once_and_again_when_the_file_changes(world, monkeypatch):
    file = register(world)
    path = put(world / "mirror", file)
    count = []
    whole = hashlib.file_digest
    monkeypatch.setattr(registry.hashlib, "file_digest", lambda *args: (count.append(1), whole(*args))[1])
    for _ in range(3):
        registry.fetch(file)
    assert len(count) == 1
    path.write_bytes(BODY.replace(b"5", b"6"))
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError):
        registry.fetch(file)
    assert len(count) == 2


def test_offline_is_an_answer_at_once_that_says_all_ways(world, server, monkeypatch):
    file = register(world, server.url)
    monkeypatch.setenv("WORKBENCH_OFFLINE", "1")
    with pytest.raises(MissingData) as caught:
        registry.fetch(file, dataset="some-set")
    message = str(caught.value)
    for part in (
        file.path,
        file.url,
        file.key,
        str(world / "cache"),
        str(world / "mirror"),
        "WORKBENCH_OFFLINE",
        "workbench data fetch some-set",
        "WORKBENCH_MIRROR",
    ):
        assert part in message
    assert "\n" not in message
    assert server.requests == 0
    monkeypatch.delenv("WORKBENCH_MIRROR")
    with pytest.raises(MissingData, match="WORKBENCH_MIRROR is not set"):
        registry.fetch(file)
    monkeypatch.setenv("WORKBENCH_MIRROR", str(world / "nowhere"))
    with pytest.raises(MissingData, match="nowhere, which is no folder"):
        registry.fetch(file)


def test_a_closed_port_is_an_answer_within_seconds_and_asked_once(world, monkeypatch):
    file = register(world, f"http://127.0.0.1:{closed_port()}/some.csv")
    asked = []
    connect = registry._connection_problem
    monkeypatch.setattr(registry, "_connection_problem", lambda *args: (asked.append(1), connect(*args))[1])
    start = time.monotonic()
    for _ in range(3):
        with pytest.raises(MissingData, match=r"the network did not work: 127\.0\.0\.1:[0-9]+: Connection refused"):
            registry.fetch(file)
    assert time.monotonic() - start < 5
    assert len(asked) == 1
    monkeypatch.setattr(registry, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(MissingData):
        registry.fetch(file)
    assert len(asked) == 2


def test_a_host_that_never_answers_does_not_hang(world, monkeypatch):
    monkeypatch.setattr(registry, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(registry.socket, "create_connection", lambda *args, **kwargs: (time.sleep(30), socket.socket())[1])
    file = register(world, "http://127.0.0.1:9/some.csv")
    start = time.monotonic()
    with pytest.raises(MissingData, match=r"no answer from 127\.0\.0\.1:9 within 0\.2 s"):
        registry.fetch(file)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("mode", ["half", "absent"])
def test_a_failed_download_leaves_nothing(world, server, mode):
    server.mode = mode
    file = register(world, server.url)
    with pytest.raises(MissingData, match="the download failed"):
        registry.fetch(file)
    assert [path for path in (world / "cache").rglob("*") if path.is_file()] == []
    server.mode = "whole"
    assert registry.fetch(file).read_bytes() == BODY


def test_a_download_of_other_bytes_is_refused_with_both_sums(world, server):
    server.mode = "other"
    file = register(world, server.url)
    with pytest.raises(DataError) as caught:
        registry.fetch(file)
    assert SHA in str(caught.value)
    assert hashlib.sha256(BODY.replace(b"5", b"6")).hexdigest() in str(caught.value)
    assert [path for path in (world / "cache").rglob("*") if path.is_file()] == []


def test_a_cache_that_cannot_be_written_is_named(world, server, monkeypatch):
    (world / "cache").write_text("a file where the folder should be")
    with pytest.raises(MissingData, match="cannot write into the cache"):
        registry.fetch(register(world, server.url))


FETCH = "from workbench.data import registry; print(registry.fetch(registry.find('some/one', 'a/some.csv'), progress=False))"


def start_fetch() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_may_fetch_at_once(world, server):
    server.pause_s = 0.5
    file = register(world, server.url)
    results = [(*process.communicate(timeout=60), process.returncode) for process in [start_fetch(), start_fetch()]]
    for out, err, code in results:
        assert (code, out.strip()) == (0, str(world / "cache" / file.key)), err
    assert (world / "cache" / file.key).read_bytes() == BODY


def test_a_killed_download_leaves_no_half_file(world, server):
    server.pause_s = 30
    file = register(world, server.url)
    process = start_fetch()
    deadline = time.monotonic() + 30
    # Killed while the second half is still to come: the first half is in some file of the folder.
    while time.monotonic() < deadline and not any(path.is_file() for path in (world / "cache").rglob("*")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert not (world / "cache" / file.key).exists()
    server.pause_s = 0
    assert registry.fetch(file).read_bytes() == BODY


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "abc"}, "file 1 has sha256 = 'abc'"),
        ({"bytes": None}, "file 1 has bytes = None; it must be a number"),
        ({"licence": 5}, "file 1 has licence = 5; it must be text"),
        ({"path": "../../escape"}, "leaves the cache folder"),
        ({"colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_a_bad_registry_is_refused(world, changes, message):
    with pytest.raises(DataError, match=message):
        register(world, **changes)


def test_a_broken_missing_or_repeating_registry_is_refused(world):
    register(world)
    path = world / "root" / "data" / "external.toml"
    text = path.read_text()
    path.write_text(text + text.removeprefix("version = 1\n"))
    with pytest.raises(DataError, match="is listed twice"):
        registry.external_files()
    path.write_text("[[file]\n")
    with pytest.raises(DataError, match="not TOML"):
        registry.external_files()
    path.unlink()
    with pytest.raises(DataError, match="set WORKBENCH_ROOT"):
        registry.external_files()


def test_an_unregistered_file_is_refused(world):
    register(world)
    with pytest.raises(UsageError, match=r"no registered file 'b\.csv' of 'some/one'"):
        registry.find("some/one", "b.csv")


def test_the_real_registry_names_upstream_at_a_commit():
    files = registry.external_files()
    assert len(files) == 51
    for file in files.values():
        assert len(file.commit) == 40
        assert file.url.replace("%20", " ") == f"https://raw.githubusercontent.com/{file.key}"
        assert file.licence in ("MIT", "none stated")


def test_every_file_of_the_mirror_has_the_registered_bytes(mirror):
    present = [(mirror / file.key, file) for file in registry.external_files().values() if (mirror / file.key).is_file()]
    if not present:
        pytest.skip(f"{mirror} holds no registered file")
    for path, file in present:
        registry.verify(path, file)
        assert path.stat().st_size == file.bytes
