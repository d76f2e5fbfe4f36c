"""A program is built once for all that its machine code depends on; what goes wrong is one line. A script stands for the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench.errors import BuildError, MissingPackage
from workbench.measure import build as module
from workbench.measure.build import Compiler, build, find_compiler, header_folder

COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo "pretend++ 1.0"; echo "more"; exit 0; fi
echo "$@" >> "$(dirname "$0")/calls"
eval source=\\${$(($# - 2))} target=\\${$#}
if grep -q wait "$source"; then sleep 60 & echo $! > "$(dirname "$0")/waiting"; wait; fi
if grep -q wrong "$source"; then echo "In file included from x" >&2; echo "$source:1:1: error: no such thing" >&2; exit 1; fi
head -c 100000 /dev/zero > "$target"; sleep 0.3; cat "$source" >> "$target"
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder with a compiler and a source; the cache stands beside it."""
    compiler = tmp_path / "pretend++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    (tmp_path / "kernel.cpp").write_text("int main() {}\n")
    (tmp_path / "part.hpp").write_text("// part\n")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(compiler))
    return tmp_path


def calls(tools: Path) -> int:
    file = tools / "calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_program_is_built_once(tools):
    path = build(tools / "kernel.cpp", {}, flags=("-O2",))
    assert path.parent == tools / "cache" / "build"
    assert path.read_bytes().endswith(b"int main() {}\n")
    assert build(tools / "kernel.cpp", {}, flags=("-O2",)) == path
    assert calls(tools) == 1
    assert "-O2" in (tools / "calls").read_text()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_headers_of_a_package_are_on_the_command_line(tools):
    build(tools / "kernel.cpp", {"boost-headers": "boost_headers/include"})
    assert f"-isystem {header_folder('boost-headers', 'boost_headers/include')}" in (tools / "calls").read_text()


@pytest.mark.parametrize("change", ["source", "header", "flags", "compiler", "cpu"])
def test_whatever_the_code_depends_on_builds_anew(tools, monkeypatch, change):
    options = {"flags": ("-O2",), "compiler": Compiler((str(tools / "pretend++"),), "pretend++ 1.0")}
    first = build(tools / "kernel.cpp", {}, **options)
    if change == "source":
        (tools / "kernel.cpp").write_text("int main() { return 0; }\n")
    elif change == "header":
        (tools / "part.hpp").write_text("// another part\n")
    elif change == "flags":
        options["flags"] = ("-O3",)
    elif change == "compiler":
        options["compiler"] = Compiler((str(tools / "pretend++"),), "pretend++ 1.1")
    else:
        monkeypatch.setattr(module, "cpu_identity", lambda: "another CPU")
    assert build(tools / "kernel.cpp", {}, **options) != first
    assert calls(tools) == 2


def test_an_error_in_the_source_is_one_line_and_leaves_no_program(tools):
    (tools / "kernel.cpp").write_text("wrong\n")
    with pytest.raises(BuildError, match=r"kernel\.cpp: the compiler .* failed: .*error: no such thing \(all of it: ") as error:
        build(tools / "kernel.cpp", {})
    assert "\n" not in str(error.value)
    (log,) = (tools / "cache" / "build").iterdir()
    assert "In file included from x" in log.read_text()
    assert str(log) in str(error.value)


def test_compiling_has_a_limit_that_ends_all_of_it(tools):
    (tools / "kernel.cpp").write_text("wait\n")
    with pytest.raises(BuildError, match=r"longer than 0\.5 s"):
        build(tools / "kernel.cpp", {}, limit_s=0.5)
    assert list((tools / "cache" / "build").iterdir()) == []
    waiting = int((tools / "waiting").read_text())
    end = time.monotonic() + 10
    while time.monotonic() < end and Path(f"/proc/{waiting}").exists() and ") Z" not in Path(f"/proc/{waiting}/stat").read_text():
        time.sleep(0.02)
    assert not Path(f"/proc/{waiting}").exists() or ") Z" in Path(f"/proc/{waiting}/stat").read_text()


def test_two_processes_build_at_once(tools):
    code = f"from pathlib import Path; from workbench.measure.build import build; print(build(Path({str(tools / 'kernel.cpp')!r}), {{}}))"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    (path,) = paths
    assert Path(path).stat().st_size == 100_000 + len("int main() {}\n")
    assert [entry.name for entry in Path(path).parent.iterdir()] == [Path(path).name]


def test_no_compiler_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match=r"no C\+\+ compiler: neither g\+\+ nor clang\+\+ is on PATH; install one"):
        find_compiler()
    monkeypatch.setenv("CXX", "icpx -fast")
    with pytest.raises(BuildError, match="CXX names 'icpx -fast', which is not there"):
        find_compiler()
    monkeypatch.setenv("CXX", "/bin/false")
    with pytest.raises(BuildError, match="does not tell its version"):
        find_compiler()


def test_cxx_may_have_options_and_comes_before_what_is_on_path(tools, monkeypatch):
    monkeypatch.setenv("CXX", f"env FAST=1 {tools / 'pretend++'}")
    assert find_compiler() == Compiler(("env", "FAST=1", str(tools / "pretend++")), "pretend++ 1.0")
    (tools / "clang++").symlink_to(tools / "pretend++")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/nowhere")
    assert find_compiler().command == ("clang++",)


def test_headers_that_are_not_installed_are_named_with_the_command():
    with pytest.raises(MissingPackage, match="pip install no-such-headers"):
        header_folder("no-such-headers", "include")


def test_a_cache_that_cannot_be_written_is_one_line(tools, monkeypatch):
    (tools / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tools / "file"))
    with pytest.raises(BuildError, match="set WORKBENCH_CACHE to another folder"):
        build(tools / "kernel.cpp", {})
