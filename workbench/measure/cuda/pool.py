"""Compiling many programs at once: a child process for each processor, and machine code kept by what it depends on."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import StoreError
from workbench.measure.cuda.compile import is_ptx
from workbench.measure.cuda.crew import Crew
from workbench.measure.isolation import Child, ChildFailure, Closing
from workbench.schema import Status

__all__ = ["Compiled", "Pool"]


@dataclass(frozen=True)
class Compiled:
    """How compiling a program ended.

    Attributes:
        status: OK, COMPILE_ERROR or TIMEOUT.
        path: the machine code, None unless status is OK. PTX stays what it is: the driver makes machine code of it when it loads it.
        compile_s: seconds it took; None where the machine code was there already, or the compiler did not come to an end, and of PTX.
        error: the reason of a failure.
    """

    status: Status
    path: Path | None = None
    compile_s: float | None = None
    error: str = ""


class Pool(Closing):
    """Compiles programs in child processes.

    Args:
        compiler: name in COMPILERS.
        version: what it says of itself: machine code that another version has made is not used.
        architecture: such as "sm_90".
        folder: where machine code is kept; what is there of a program is used again.
        workers: number of child processes.
        limit_s: seconds that a program may take.
    """

    def __init__(self, compiler: str, version: str, architecture: str, folder: Path, *, workers: int = 1, limit_s: float = 10.0) -> None:
        self._version, self._architecture, self._folder, self._limit_s = version, architecture, folder, limit_s
        remedy = "run it again, or name another compiler"
        self._crew = Crew("workbench.measure.cuda.compile", {"compiler": compiler}, size=workers, remedy=remedy)

    def submit(self, source: Callable[[], str], *, limit_s: float | None = None) -> Future[Compiled]:
        """Compile a program, which is called for when its turn comes, within `limit_s` instead of the pool's limit; those submitted first come first.

        The result raises BuildError where the compiler does not start, and StoreError where its folder cannot be written.
        """
        return self._crew.submit(lambda child: self._compile(child, source(), self._limit_s if limit_s is None else limit_s))

    def compile(self, source: str, *, limit_s: float | None = None) -> Compiled:
        """Compile a program and wait for it; see `submit`."""
        return self.submit(lambda: source, limit_s=limit_s).result()

    def close(self) -> None:
        """End the child processes; what was not compiled yet will not be."""
        self._crew.close()

    def _compile(self, child: Child, source: str, limit_s: float) -> Compiled:
        digest = hashlib.sha256("\0".join((self._version, self._architecture, source)).encode()).hexdigest()[:40]
        target, text = self._folder / f"{digest}.cubin", self._folder / f"{digest}.{threading.get_ident()}.cu"
        if target.is_file():
            return Compiled(Status.OK, target)
        try:
            text.write_text(source, encoding="utf-8")
            if is_ptx(source):
                return Compiled(Status.OK, text.replace(target.with_suffix(".ptx")))
            answer = child.ask({"do": "compile", "source": str(text), "target": str(target), "architecture": self._architecture}, limit_s)
        except ChildFailure as failure:
            return Compiled(Status.TIMEOUT if failure.status is Status.TIMEOUT else Status.COMPILE_ERROR, error=f"the compiler: {failure.reason}")
        except OSError as error:
            raise StoreError(f"{self._folder}: programs cannot be kept there ({error.strerror or error}); name another folder, with free space") from error
        finally:
            text.unlink(missing_ok=True)
        if "error" in answer:
            return Compiled(Status.COMPILE_ERROR, error=answer["error"])
        if "failed" in answer:
            return Compiled(Status.COMPILE_ERROR, compile_s=answer["compile_s"], error=answer["failed"])
        return Compiled(Status.OK, target, answer["compile_s"])
