"""The measurement store: one SQLite file in write-ahead mode. What `add` has acknowledged survives a crash, and a fault is named, never repaired in silence.

Any number of processes of one machine may read and write a store at once (write-ahead mode needs shared memory, so not over a network file system).
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from workbench.errors import DataError, StoreError
from workbench.schema import Measurement, Status, Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["STORE_VERSION", "Key", "Store", "Where", "salvage"]

STORE_VERSION = 1
_APPLICATION_ID = 0x57424D53  # "WBMS": tells a store from any other SQLite file
_MAGIC = b"SQLite format 3\x00"
_PAGE = 1000  # records read at a time

_TABLES = """
CREATE TABLE measurement (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kernel TEXT NOT NULL,
    workload TEXT NOT NULL,
    device TEXT NOT NULL,
    space TEXT NOT NULL,
    configuration TEXT NOT NULL,
    status TEXT NOT NULL,
    record TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE INDEX measurement_key ON measurement (workload, device, space, configuration);
"""


# Made with the first note: a store without any is one that earlier versions have written.
_NOTES = "CREATE TABLE IF NOT EXISTS note (name TEXT PRIMARY KEY, text TEXT NOT NULL)"


class Where(TypedDict, total=False):
    """Conditions that a record must meet, all of them; without any, every record does."""

    kernel: str
    workload: Workload
    device: str
    space: str
    status: Status | str


class Key(NamedTuple):
    """What was tried: workload key, device, space and configuration ("#index", or the knobs as JSON where the space is not enumerated)."""

    workload: str
    device: str
    space: str
    configuration: str

    @classmethod
    def of(cls, workload: Workload, device: str, space: str = "", index: int | None = None, config: Mapping[str, Any] | None = None) -> Key:
        """The key that a measurement with these fields has."""
        return cls(workload.key, device, space, f"#{int(index)}" if index is not None else _dumps(dict(sorted((config or {}).items()))))


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):  # numpy scalars
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as error:
        raise DataError(f"a measurement cannot be stored: {error} (in {str(value)[:200]})") from error


def _row(measurement: Measurement) -> tuple[str | int, ...]:
    m = measurement
    key = Key.of(m.workload, m.device, m.space, m.index, m.config)
    record = _dumps(m.to_json())
    return (m.workload.kernel, *key, str(m.status), record, zlib.crc32(record.encode()))


def _parse(record: str, crc: int) -> Measurement:
    # SQLite checks its log but not its pages: without a sum a flipped bit in a time would pass.
    if zlib.crc32(record.encode()) != crc:
        raise DataError("its checksum does not fit")
    return Measurement.from_json(json.loads(record))


def _conditions(where: Where) -> tuple[str, list[str]]:
    unknown = set(where) - set(Where.__annotations__)
    if unknown:
        raise TypeError(f"no such condition: {', '.join(sorted(unknown))}; use {', '.join(Where.__annotations__)}")
    values = {name: value.key if isinstance(value, Workload) else str(value) for name, value in where.items()}
    return "".join(f" AND {name} = ?" for name in values), list(values.values())


class Store:
    """Measurements in the file `path`, which is made if it is not there.

    Args:
        path: the store's file; `path-wal` and `path-shm` stand beside it while it is open and after a crash: they belong to it, keep them together.
        busy_timeout_s: how long a write waits for another process's.

    Raises:
        StoreError: the file is not a store, is damaged or cut off, was made by a newer workbench, or cannot be written. What is there is never
            made anew.
    """

    def __init__(self, path: Path | str, *, busy_timeout_s: float = 30.0) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._closed = False
        if not self.path.exists():
            _create(self.path)
        _check_header(self.path)
        with _explained(self.path, "open"):
            # Autocommit: transactions are begun and ended below, never by the driver. The lock makes one connection safe for the threads of a process.
            self._db = sqlite3.connect(self.path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
        try:
            with _explained(self.path, "open"):
                self._check_version()
                # FULL syncs the log at every commit: an acknowledged record survives a power cut, not only a crash of the process.
                self._db.execute("PRAGMA synchronous = FULL")
                mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    raise StoreError(f"{self.path}: its file system does not allow write-ahead mode (got {mode!r}); use a folder on a local disk")
                # A write transaction that changes nothing finds out now whether the file can be written.
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute("ROLLBACK")
        except BaseException:
            self._db.close()
            raise

    def _check_version(self) -> None:
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION_ID:
            raise StoreError(
                f"{self.path}: an SQLite file, but not a measurement store (application id {application:#x}); nothing was changed. Use another path"
            )
        if version != STORE_VERSION:
            raise StoreError(
                f"{self.path}: a store of version {version}; this workbench reads version {STORE_VERSION}. Nothing was changed; update workbench to read it"
            )
        self._db.execute("SELECT id FROM measurement LIMIT 1").fetchone()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; records are safe with or without. Closing twice is harmless."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._db.close()

    def _execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        if self._closed:
            raise StoreError(f"{self.path}: the store is closed; open it again with Store(path)")
        return self._db.execute(sql, tuple(values))

    def add(self, measurements: Iterable[Measurement]) -> list[int]:
        """Store measurements, all or none, and return their ids in the store. When this returns they are on the disk.

        Raises:
            DataError: a measurement that JSON cannot carry (NaN in `config`, `compile_s`, ...); none is stored.
            StoreError: the disk is full, another process holds the store, or the file is damaged; none is stored, and all that was acknowledged before is kept.
        """
        rows = [_row(m) for m in measurements]  # before the transaction: other writers wait for no one's generator
        with self._lock, _explained(self.path, "write", stored=self._count):
            self._execute("BEGIN IMMEDIATE")
            try:
                insert = "INSERT INTO measurement (kernel, workload, device, space, configuration, status, record, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
                ids = [int(self._db.execute(insert, row).lastrowid or 0) for row in rows]
                self._db.execute("COMMIT")
            except BaseException:
                # After some faults (a full disk) SQLite has rolled back already, and on a broken disk a rollback fails: the first error is the one to report.
                with suppress(sqlite3.Error):
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                raise
        return ids

    def note(self, name: str, text: str | None = None) -> str | None:
        """The text kept under a name, such as how a series was measured; None if there is none. `text` is kept if there is none yet: the first one stays."""
        with self._lock, _explained(self.path, "write a note in" if text is not None else "read a note of"):
            if text is not None:
                self._execute(_NOTES)
                self._execute("INSERT OR IGNORE INTO note (name, text) VALUES (?, ?)", (name, text))
            elif self._execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'note'").fetchone() is None:
                return None
            found = self._execute("SELECT text FROM note WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def _count(self) -> int | None:
        with suppress(sqlite3.Error):
            return int(self._db.execute("SELECT count(*) FROM measurement").fetchone()[0])
        return None

    def __len__(self) -> int:
        """Number of records."""
        with self._lock, _explained(self.path, "read"):
            return int(self._execute("SELECT count(*) FROM measurement").fetchone()[0])

    def rows(self, **where: Unpack[Where]) -> Iterator[Measurement]:
        """Records that meet the conditions, in the order of their ids; records added while this runs may be included.

        Raises:
            StoreError: a damaged place in the file; names the id up to which records were given.
        """
        conditions, values = _conditions(where)
        last = 0
        while True:
            with self._lock, _explained(self.path, f"read records after id {last} of"):
                page = self._execute(f"SELECT id, record, crc FROM measurement WHERE id > ?{conditions} ORDER BY id LIMIT {_PAGE}", [last, *values]).fetchall()  # noqa: S608
            for identity, record, crc in page:
                try:
                    measurement = _parse(record, crc)
                except ValueError as error:
                    raise StoreError(f"{self.path}: record {identity} cannot be read ({error}); records up to id {last} were read") from error
                last = identity
                yield measurement
            if len(page) < _PAGE:
                return

    def done(self, **where: Unpack[Where]) -> set[Key]:
        """Keys of what has a record, whatever its status unless `status` is given: a resumed run leaves these out."""
        conditions, values = _conditions(where)
        with self._lock, _explained(self.path, "read"):
            found = self._execute(f"SELECT DISTINCT workload, device, space, configuration FROM measurement WHERE 1{conditions}", values).fetchall()  # noqa: S608
        return {Key(*row) for row in found}

    def frame(self, **where: Unpack[Where]) -> pd.DataFrame:
        """Records as a tidy frame, one row a record: `kernel`, a column a parameter, `device`, `space`, `index`, a column a knob, `status`, `time_s`, ...

        A failure's `time_s` is NaN. Raises DataError where a parameter and a knob, or either and a column of the record, have one name.
        """
        from workbench.data.parquet import to_frame

        return to_frame(self.rows(**where))

    def export(self, path: Path | str, **where: Unpack[Where]) -> int:
        """Write records to a Parquet file (zstd), which appears whole or not at all; returns their number."""
        from workbench.data.parquet import write_parquet

        return write_parquet(path, self.rows(**where))

    def load(self, path: Path | str) -> int:
        """Add every record of a file made by `export`, all or none; returns their number. Loading a file twice stores its records twice."""
        from workbench.data.parquet import read_parquet

        return len(self.add(read_parquet(path)))

    def verify(self) -> int:
        """Read every page and every record; returns the number of records. Raises StoreError naming the first fault."""
        with self._lock, _explained(self.path, "verify"):
            fault = self._execute("PRAGMA integrity_check(1)").fetchone()[0]
        if fault != "ok":
            raise StoreError(f"{self.path}: damaged ({fault.splitlines()[-1]}); {_rescue(self.path)}")
        return sum(1 for _ in self.rows())


def salvage(path: Path | str, target: Path | str) -> tuple[int, int]:
    """Copy what can still be read of a damaged store into a new one, its notes too; the damaged file is not changed.

    Returns:
        Records copied, and ids known to have been given that could not be read.

    Raises:
        StoreError: nothing can be read, or `target` is there already.
    """
    if Path(target).exists():
        raise StoreError(f"{target}: is there already; salvage writes to a new file")
    records, lost, notes = _readable(Path(path))
    if not records:
        raise StoreError(f"{path}: no record can be read; restore the file from a copy")
    with Store(target) as store:
        for name, text in notes.items():
            store.note(name, text)
        store.add(records)
    return len(records), lost


def _readable(path: Path) -> tuple[list[Measurement], int, dict[str, str]]:
    """The records and notes that can be read, and the number of records that cannot."""
    records: list[Measurement] = []
    notes: dict[str, str] = {}
    lost = 0
    with suppress(sqlite3.Error):
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            db.execute("PRAGMA writable_schema = ON")  # lets SQLite look into a file shorter than its header says
            db.execute("PRAGMA cell_size_check = ON")
            # Ids are looked up one by one: a damaged page loses its own records and no others.
            with suppress(sqlite3.Error):
                last = int(db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'measurement'").fetchone()[0])
                for identity in range(1, last + 1):
                    try:
                        row = db.execute("SELECT record, crc FROM measurement WHERE id = ?", (identity,)).fetchone()
                        records.append(_parse(*row))
                    except (sqlite3.Error, ValueError, TypeError):
                        lost += 1
            with suppress(sqlite3.Error):  # there is no such table where there are no notes
                for name, text in db.execute("SELECT name, text FROM note"):
                    notes[str(name)] = str(text)
        finally:
            db.close()
    return records, lost, notes


def _rescue(path: Path) -> str:
    return f"nothing was changed. Restore it from a copy, or keep what can be read: workbench.data.store.salvage({str(path)!r}, NEW_PATH)"


def _create(path: Path) -> None:
    """Make an empty store beside `path` and link it into place: a crash leaves no half-made store, and of two makers one wins."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            fresh = Path(folder) / "store"
            with _explained(path, "make"):
                db = sqlite3.connect(fresh, isolation_level=None)
                try:
                    db.execute("PRAGMA synchronous = FULL")
                    db.execute("PRAGMA journal_mode = WAL")
                    db.executescript(f"BEGIN; PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {STORE_VERSION}; {_TABLES} COMMIT;")
                finally:
                    db.close()
            try:
                os.link(fresh, path)
            except FileExistsError:
                pass  # another process was first
            except OSError:
                # Some file systems have no links. A move would overwrite, so it is left to the moment when nothing is there.
                if not path.exists():
                    os.rename(fresh, path)
            _sync_folder(path.parent)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path}: cannot be made ({error.strerror or error}); choose a folder that can be written, with free space") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_header(path: Path) -> None:
    """Refuse what is not a whole SQLite file before SQLite sees it: it would turn an empty file into a new store."""
    try:
        if not path.is_file():
            raise StoreError(f"{path}: not a file; give the path of the store's file")
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(100)
    except PermissionError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); change its permissions") from error
    if size == 0:
        raise StoreError(f"{path}: empty (0 bytes), where a store has a header at offset 0; it was cut off. Restore it from a copy, or delete it to start anew")
    if header[:16] != _MAGIC[: len(header[:16])]:
        raise StoreError(f"{path}: not a measurement store (no SQLite header at offset 0); nothing was changed. Use another path")
    if size < 100:
        raise StoreError(f"{path}: cut off at offset {size}, inside its header; restore it from a copy")
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    expected = page * int.from_bytes(header[28:32], "big")
    log = Path(f"{path}-wal")
    # With a log beside it the file may lag behind its own header (a crash while the log was copied in); SQLite then reads the rest from the log.
    # The size is taken again, since another process may have finished that copying and removed the log in between.
    if size < expected and not (log.exists() and log.stat().st_size > 0) and path.stat().st_size < expected:
        records, _, _ = _readable(path)
        raise StoreError(f"{path}: cut off at offset {size:,} of {expected:,} bytes; {len(records):,} records can be read; {_rescue(path)}")


@contextmanager
def _explained(path: Path, doing: str, stored: Any = None) -> Iterator[None]:
    """Turn SQLite's errors into StoreErrors that say what is kept and what to do. `stored` counts the records that are safe."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        raise StoreError(f"{path}: cannot {doing} the store ({error}): {_meaning(path, code, stored() if stored else None)}") from error


def _meaning(path: Path, code: str, stored: int | None) -> str:
    kept = "" if stored is None else f"; the {stored:,} measurements acknowledged before are kept, none of this call's is"
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        cause = "the disk is full" if code == "SQLITE_FULL" else "the disk failed or is full"
        return f"{cause}{kept}. Free space in {path.resolve().parent} and add them again"
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"another process has held it for too long{kept}. Wait for it, or open with a longer busy_timeout_s"
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"the file is damaged; {_rescue(path)}"
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"the file or its folder {path.resolve().parent} cannot be written{kept}. Change the permissions or use another folder"
    return f"an unexpected fault ({code or 'no code'}){kept}"
