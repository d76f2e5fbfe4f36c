"""Files that others published, by URL and sha256: from the cache, else from a mirror, else from the network.

`data/external.toml` names every such file. Nothing of it is ever committed. Three environment variables steer where bytes come from:

* `WORKBENCH_CACHE`: folder of downloaded files (default: the user's cache folder, `pooch.os_cache("workbench")`).
* `WORKBENCH_MIRROR`: folder with upstream files at `<owner>/<repository>/<commit>/<path>`, read in place and never copied.
* `WORKBENCH_OFFLINE`: "1" forbids the network.

Whatever the place, a file is used only if its sha256 is the registered one.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import threading
import time
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from workbench.errors import DataError, MissingData, UsageError
from workbench.paths import project_root

__all__ = ["ExternalFile", "cache_folder", "external_files", "fetch", "find", "locate", "mirror_folder", "sha256_of", "verify"]

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0
# For this long a host that did not answer is not asked again: a machine without a network answers in seconds, whatever the number of files.
PATIENCE_SECONDS = 60.0
FIELDS = {"repository": str, "commit": str, "path": str, "bytes": int, "sha256": str, "licence": str, "url": str}

_digests: dict[tuple[str, int, int], str] = {}
_unreachable: dict[str, tuple[float, str]] = {}


@dataclass(frozen=True)
class ExternalFile:
    """One upstream file: where it stands, its size and sha256, and the licence of its repository (SPDX name or "none stated")."""

    repository: str
    commit: str
    path: str
    bytes: int
    sha256: str
    licence: str
    url: str

    @property
    def key(self) -> str:
        """Relative place in a cache or mirror: `<owner>/<repository>/<commit>/<path>`."""
        return f"{self.repository}/{self.commit}/{self.path}"


def cache_folder() -> Path:
    """Folder of downloaded files."""
    if folder := os.environ.get("WORKBENCH_CACHE"):
        return Path(folder).expanduser()
    import pooch

    return Path(pooch.os_cache("workbench"))


def mirror_folder() -> Path | None:
    """Folder that WORKBENCH_MIRROR names, or None."""
    folder = os.environ.get("WORKBENCH_MIRROR")
    return Path(folder).expanduser() if folder else None


def external_files() -> dict[str, ExternalFile]:
    """Every registered file by its key.

    Raises:
        DataError: `data/external.toml` is missing or an entry lacks a field, is unsafe or appears twice.
    """
    path = project_root() / "data" / "external.toml"
    try:
        return _read_registry(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise DataError(f"{path}: cannot read the list of external files ({error.strerror}); set WORKBENCH_ROOT to a checkout of the project") from error


@lru_cache(maxsize=4)
def _read_registry(path: Path, _mtime_ns: int) -> dict[str, ExternalFile]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not TOML: {error}") from error
    files: dict[str, ExternalFile] = {}
    for number, entry in enumerate(document.get("file", []), 1):
        for name, kind in FIELDS.items():
            if type(entry.get(name)) is not kind:
                raise DataError(f"{path}: file {number} has {name} = {entry.get(name)!r}; it must be {'a number' if kind is int else 'text'}")
        if unknown := sorted(set(entry) - set(FIELDS)):
            raise DataError(f"{path}: file {number} has the unknown field {unknown[0]!r}; fields are {', '.join(FIELDS)}")
        file = ExternalFile(**entry)
        if not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
            raise DataError(f"{path}: file {number} has sha256 = {file.sha256!r}; it must be 64 lower-case hexadecimal digits")
        if Path(file.key).is_absolute() or ".." in Path(file.key).parts:
            raise DataError(f"{path}: file {number} has the path {file.key!r}, which leaves the cache folder")
        if file.key in files:
            raise DataError(f"{path}: {file.key} is listed twice")
        files[file.key] = file
    return files


def find(repository: str, path: str) -> ExternalFile:
    """The registered file of a repository ("owner/name") at a path. Raises UsageError if there is none."""
    for file in external_files().values():
        if file.repository == repository and file.path == path:
            return file
    raise UsageError(f"no registered file {path!r} of {repository!r}; data/external.toml lists what there is")


def sha256_of(path: Path) -> str:
    """Hexadecimal sha256 of a file, computed once a process for a given path, size and modification time."""
    status = path.stat()
    key = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    if key not in _digests:
        with path.open("rb") as stream:
            _digests[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _digests[key]


def verify(path: Path, file: ExternalFile) -> None:
    """Check that `path` holds the registered bytes. Raises DataError with both sums if it does not."""
    found = sha256_of(path)
    if found != file.sha256:
        raise DataError(
            f"{path}: sha256 is {found} ({path.stat().st_size} bytes), registered is {file.sha256} ({file.bytes} bytes); "
            "the file is damaged or of another version: delete it and fetch it again"
        )


def locate(file: ExternalFile) -> Path | None:
    """Path of a verified copy in the cache or the mirror, None if neither has one; never uses the network. Raises DataError for a copy with a wrong sha256."""
    for folder in (cache_folder(), mirror_folder()):
        if folder is not None and (path := folder / file.key).is_file():
            verify(path, file)
            return path
    return None


def fetch(file: ExternalFile, *, dataset: str = "NAME", progress: bool | None = None) -> Path:
    """Path of a verified copy: cache, then mirror, then one download into the cache.

    A download goes to a temporary file beside its target and is renamed when its sha256 is right, so that an interrupted one leaves no half file and two
    processes may fetch the same file at once.

    Args:
        file: what to get.
        dataset: the data set it belongs to, for the message.
        progress: show a progress bar; None shows one on a terminal.

    Raises:
        MissingData: no copy and no network (says where it looked and how to get the file).
        DataError: a copy or a download with a wrong sha256.
    """
    if (found := locate(file)) is not None:
        return found
    if os.environ.get("WORKBENCH_OFFLINE", "") not in ("", "0"):
        raise _missing(file, dataset, "WORKBENCH_OFFLINE is set, so the network was not tried")
    if reason := _unreachable_reason(file.url):
        raise _missing(file, dataset, f"the network did not work: {reason}")
    return _download(file, dataset, sys.stderr.isatty() if progress is None else progress)


def _download(file: ExternalFile, dataset: str, progress: bool) -> Path:
    import pooch
    import requests

    target = cache_folder() / file.key
    downloader = pooch.HTTPDownloader(progressbar=progress, timeout=(CONNECT_SECONDS, READ_SECONDS))
    pooch.get_logger().setLevel("WARNING")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        got = pooch.retrieve(file.url, known_hash=f"sha256:{file.sha256}", fname=target.name, path=target.parent, downloader=downloader)
    except requests.RequestException as error:
        raise _missing(file, dataset, f"the download failed: {error}") from error
    except OSError as error:
        raise _missing(file, dataset, f"cannot write into the cache {target.parent}: {error}") from error
    except ValueError as error:
        if found := re.search(r"got ([0-9a-f]{64})", str(error)):
            raise DataError(f"{file.url}: downloaded bytes have sha256 {found[1]}, registered is {file.sha256}; nothing was kept") from error
        raise
    return Path(got)


def _unreachable_reason(url: str) -> str:
    """Why the host of a URL cannot be reached, "" if it can."""
    parts = urlsplit(url)
    since, reason = _unreachable.get(parts.netloc, (0.0, ""))
    if reason and time.monotonic() - since < PATIENCE_SECONDS:
        return reason
    reason = _connection_problem(parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    _unreachable[parts.netloc] = (time.monotonic(), reason)
    return reason


def _connection_problem(scheme: str, host: str, port: int) -> str:
    """Why no connection to a host can be opened within CONNECT_SECONDS, "" if one can or if a proxy stands between."""
    if scheme in getproxies() and not proxy_bypass(host):
        return ""
    problem = [f"no answer from {host}:{port} within {CONNECT_SECONDS:g} s"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
            problem[0] = ""
        except OSError as error:
            problem[0] = f"{host}:{port}: {error.strerror or error}"

    # A thread, since a name look-up has no timeout of its own.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS + 1)
    return problem[0]


def _missing(file: ExternalFile, dataset: str, why: str) -> MissingData:
    mirror = mirror_folder()
    if mirror is None:
        mirrored = "WORKBENCH_MIRROR is not set"
    elif not mirror.is_dir():
        mirrored = f"WORKBENCH_MIRROR={mirror}, which is no folder"
    else:
        mirrored = f"not in the mirror {mirror}"
    return MissingData(
        f"{file.path} of {file.repository} is out of reach: not in the cache {cache_folder()}; {mirrored}; {why}. Get it with `workbench data fetch {dataset}` "
        f"on a machine with a network ({file.url}), or set WORKBENCH_MIRROR to a folder that holds {file.key}"
    )
