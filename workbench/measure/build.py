"""C++ programs built on this machine, each once: the cache is named by all that the machine code depends on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from workbench.data.registry import cache_folder
from workbench.errors import BuildError, MissingPackage
from workbench.measure.host import cpu_identity

__all__ = ["FLAGS", "Compiler", "build", "find_compiler", "header_folder"]

FLAGS = ("-std=c++17", "-O3", "-march=native", "-DNDEBUG", "-fopenmp")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command, and the first line of what it says of its version."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """The compiler that CXX names, else g++ or clang++ on PATH.

    Raises:
        BuildError: there is none, or it does not run.
    """
    named = os.environ.get("CXX", "").strip()
    for words in [tuple(shlex.split(named))] if named else [("g++",), ("clang++",)]:
        if shutil.which(words[0]) is None:
            continue
        try:
            done = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"the C++ compiler {shlex.join(words)!r} does not run: {error}") from error
        if done.returncode != 0 or not done.stdout.strip():
            raise BuildError(f"the C++ compiler {shlex.join(words)!r} does not tell its version (exit code {done.returncode}); set CXX to another")
        return Compiler(words, done.stdout.splitlines()[0].strip())
    looked = f"CXX names {named!r}, which is not there" if named else "neither g++ nor clang++ is on PATH"
    raise BuildError(f"no C++ compiler: {looked}; install one (Debian: apt-get install g++; conda: conda install cxx-compiler) or set CXX")


def header_folder(package: str, folder: str) -> Path:
    """The headers that an installed package brings. Raises MissingPackage, with the pip command, where it is not installed."""
    try:
        path = Path(str(importlib.metadata.distribution(package).locate_file(folder)))
    except importlib.metadata.PackageNotFoundError:
        path = None
    if path is None or not path.is_dir():
        raise MissingPackage(f"building needs the headers of the package {package!r}, which is not installed; run: pip install {package}", name=package)
    return path


def build(source: Path, headers: Mapping[str, str], *, flags: Sequence[str] = FLAGS, compiler: Compiler | None = None, limit_s: float = 600.0) -> Path:
    """The program of a C++ file: from the cache (`build` in the cache folder of WORKBENCH_CACHE, else the user's), else compiled.

    The cache's key is the sha256 of the file and the headers beside it, the flags, the compiler's version, the CPU and the packages' versions. A program
    appears whole or not at all, so that two processes may build it at once.

    Args:
        source: the file.
        headers: package -> its folder of headers.
        flags: options of the compiler.
        compiler: None finds one.
        limit_s: seconds that compiling may take.

    Raises:
        BuildError: no compiler, an error in the source (its first line is given, and where the whole is), too long, or no place to write.
        MissingPackage: a package of headers is not installed.
    """
    compiler = compiler or find_compiler()
    folders = {package: header_folder(package, folder) for package, folder in headers.items()}
    target = cache_folder() / "build" / f"{source.stem}-{_key(source, folders, flags, compiler)}"
    if target.is_file():
        return target
    includes = [option for folder in folders.values() for option in ("-isystem", str(folder))]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{source.stem}.", dir=target.parent) as scratch:
            fresh = Path(scratch) / "program"
            _compile([*compiler.command, *flags, *includes, str(source), "-o", str(fresh)], source, target.with_suffix(".log"), limit_s)
            with fresh.open("rb") as file:
                os.fsync(file.fileno())
            fresh.replace(target)
    except OSError as error:
        if isinstance(error, BuildError):
            raise
        raise BuildError(f"{target.parent}: programs cannot be kept there ({error.strerror or error}); set WORKBENCH_CACHE to another folder") from error
    return target


def _key(source: Path, folders: Mapping[str, Path], flags: Sequence[str], compiler: Compiler) -> str:
    digest = hashlib.sha256()
    versions = [f"{package} {importlib.metadata.version(package)}" for package in folders]
    for text in (*flags, *compiler.command, compiler.version, cpu_identity(), *versions):
        digest.update(text.encode() + b"\0")
    for path in (source, *sorted(source.parent.glob("*.hpp"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _compile(command: Sequence[str], source: Path, log: Path, limit_s: float) -> None:
    # In a session of its own: a compiler's driver that is killed leaves the compiler itself running.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            said = process.communicate(timeout=limit_s)[1]
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise BuildError(f"{source.name}: compiling took longer than {limit_s:g} s and was ended; the command: {shlex.join(command)}") from None
    if process.returncode != 0:
        log.write_text(f"{shlex.join(command)}\n{said}", encoding="utf-8")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), lines[-1] if lines else f"exit code {process.returncode}")
        raise BuildError(f"{source.name}: the compiler {command[0]} failed: {first[:300]} (all of it: {log})")
