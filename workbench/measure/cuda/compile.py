"""CUDA C to machine code: NVRTC through ctypes, or nvcc.

As `python -m workbench.measure.cuda.compile JSON` it is a child process that compiles one file after another: a compiler that crashes or does not come to an
end takes nobody with it. The JSON has `parent` and `compiler`, a name in COMPILERS. Request:

    compile  the file `source` for `architecture`, such as "sm_90", into the file `target`, which appears whole or not at all
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from workbench.errors import BuildError, UsageError
from workbench.measure.serving import Commands, serve

__all__ = ["COMPILERS", "Compiler", "Nvcc", "Nvrtc", "compilers", "is_ptx", "option_of"]

# Names another NVRTC library than the one that is found.
LIBRARY = "WORKBENCH_NVRTC"

_STANDARD = "--std=c++17"
_KEPT_LOG = 2000  # characters of what a compiler says
_Program, _Size = ctypes.c_void_p, ctypes.c_size_t


class Compiler(Protocol):
    """Makes machine code of CUDA C. `version` is its name and version in one line."""

    version: str

    def compile(self, source: Path, architecture: str) -> bytes:
        """The compiled program. Raises BuildError with what the compiler said."""


class Nvrtc:
    """NVIDIA's compiler as a library. Raises BuildError where there is none that loads."""

    def __init__(self) -> None:
        reasons = []
        for path in _nvrtc_paths():
            try:
                _load_builtins(path)
                self._library = ctypes.CDLL(path)
                major, minor = ctypes.c_int(), ctypes.c_int()
                self._check("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
            except (OSError, AttributeError) as error:
                reasons.append(f"{path}: {error}")
                continue
            self.version = f"NVRTC {major.value}.{minor.value}"
            return
        raise BuildError(f"no NVRTC: {'; '.join(reasons)[:300]}; install the package nvidia-cuda-nvrtc, or name the library in {LIBRARY}")

    def compile(self, source: Path, architecture: str) -> bytes:
        """See Compiler."""
        options = [option_of(architecture).encode(), _STANDARD.encode()]
        program = _Program()
        self._check("nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None)
        try:
            failed = self._library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
            if failed:
                raise BuildError(self._text(program, "nvrtcGetProgramLog") or f"NVRTC failed with error {failed} and said nothing")
            return self._bytes(program, "nvrtcGetCUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, name: str) -> str:
        return self._bytes(program, name).rstrip(b"\0").decode(errors="replace").strip()

    def _bytes(self, program: ctypes.c_void_p, name: str) -> bytes:
        size = _Size()
        self._check(f"{name}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(1, size.value))
        self._check(name, program, buffer)
        return buffer.raw[: size.value]

    def _check(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise BuildError(f"NVRTC's {name} failed with error {code}")


class Nvcc:
    """The compiler of a CUDA toolkit as a program. Raises BuildError where there is none that runs."""

    def __init__(self) -> None:
        found = _nvcc()
        if found is None:
            raise BuildError("no nvcc on PATH or in CUDA_HOME; install a CUDA toolkit, or the package nvidia-cuda-nvrtc")
        self._command = found
        try:
            done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise BuildError(f"{found} does not run: {error}") from error
        # The line before the last: "Cuda compilation tools, release 13.0, V13.0.88".
        self.version = f"nvcc {done.stdout.strip().rpartition('release ')[2].splitlines()[0]}"

    def compile(self, source: Path, architecture: str) -> bytes:
        """See Compiler."""
        target = source.with_name(f".{source.name}.{os.getpid()}.cubin")
        command = [self._command, "-cubin", "-w", option_of(architecture), _STANDARD, "-o", str(target), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                raise BuildError((done.stderr or done.stdout).strip() or f"nvcc failed with exit code {done.returncode} and said nothing")
            return target.read_bytes()
        finally:
            target.unlink(missing_ok=True)


# In the order in which they are tried: NVRTC starts no other programs and is there wherever torch's CUDA wheel is.
COMPILERS: Mapping[str, Callable[[], Compiler]] = {"nvrtc": Nvrtc, "nvcc": Nvcc}


def compilers(only: str | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """The compilers of this machine: name -> version of those that load, name -> reason of those that do not. That they compile is to be seen by a program.

    Raises:
        UsageError: `only` names none in COMPILERS.
    """
    if only is not None and only not in COMPILERS:
        raise UsageError(f"there is no compiler {only!r}; there are {', '.join(COMPILERS)}")
    there, missing = {}, {}
    for name in COMPILERS if only is None else (only,):
        try:
            there[name] = COMPILERS[name]().version
        except BuildError as error:
            missing[name] = str(error)
    return there, missing


def is_ptx(source: str) -> bool:
    """Whether a program is PTX, which a driver compiles by itself when it is loaded: that begins with its version, which CUDA C never does."""
    statements = (line.strip() for line in source.splitlines())
    return next((line for line in statements if line and not line.startswith("//")), "").startswith(".version ")


def option_of(architecture: str) -> str:
    """The compilers' option for machine code of an architecture."""
    return f"-arch={architecture}"


def _nvcc() -> str | None:
    for root in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"))):
        if found := shutil.which("nvcc", path=str(Path(root) / "bin")):
            return found
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def _nvrtc_paths() -> Iterator[str]:
    if named := os.environ.get(LIBRARY):
        yield named
        return
    # Wheels put it in site-packages/nvidia/cuda_nvrtc/lib (CUDA 12) or nvidia/cu13/lib.
    for folder in sys.path:
        yield from _libraries(Path(folder or ".") / "nvidia", "*/lib")
    if nvcc := _nvcc():
        root = Path(nvcc).resolve().parent.parent
        yield from _libraries(root, "lib64")
        yield from _libraries(root, "targets/*/lib")
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def _libraries(root: Path, folders: str) -> list[str]:
    return [str(path) for path in sorted(root.glob(f"{folders}/libnvrtc.so*"), reverse=True) if ".alt." not in path.name]


def _load_builtins(path: str) -> None:
    """NVRTC opens this companion by its name only: one that is loaded already is found wherever it lies."""
    for companion in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")) if os.sep in path else ():
        if ".alt." not in companion.name:
            ctypes.CDLL(str(companion), mode=ctypes.RTLD_GLOBAL)


def _prepare(setup: dict[str, Any]) -> Commands:
    compiler = COMPILERS[setup["compiler"]]()

    def compile_file(request: Mapping[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        try:
            image = compiler.compile(Path(request["source"]), request["architecture"])
        except BuildError as error:
            return {"failed": _first_error(str(error)), "compile_s": time.perf_counter() - start}
        target = Path(request["target"])
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        fresh.write_bytes(image)
        fresh.replace(target)
        return {"compile_s": time.perf_counter() - start}

    return {"compile": compile_file}


def _first_error(log: str) -> str:
    """The line of a compiler's log that says what is wrong, and what follows it."""
    lines = [line.strip() for line in log[:100_000].splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    return " ".join(" ".join(lines[first:]).split())[:_KEPT_LOG] or "the compiler failed and said nothing"


if __name__ == "__main__":
    serve(_prepare)
