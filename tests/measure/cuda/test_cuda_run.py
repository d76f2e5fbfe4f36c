"""A run on a GPU from the bundle to its results: every fault has its record, and whatever ends it leaves what was measured for the next to go on from."""

from __future__ import annotations

import ast
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import small_bundle

import workbench
from workbench.errors import DataError, DeviceError, MissingData, UsageError
from workbench.measure.cuda.measuring import DONE, LATE, STOPPED, WRONG
from workbench.measure.cuda.records import identity_of, read_results
from workbench.measure.cuda.run import Options, main, run_bundle
from workbench.schema import Measurement

PACKAGE = Path(workbench.__file__).parent
FAULTS = {
    "lacks_a_channel": "wrong_result",
    "lacks_an_element": "wrong_result",
    "adds_up": "wrong_result",
    "spoils_its_input": "wrong_result",
    "refused": "invalid_config",
    "memory": "run_error",
    "has_no_such_kernel": "run_error",
    "illegal": "run_error",
    "traps": "run_error",
    "hangs": "timeout",
}


def records(folder: Path) -> list[dict[str, Any]]:
    return read_results(folder)[1]


def measurements(folder: Path) -> list[Measurement]:
    return [Measurement.from_json({name: value for name, value in entry.items() if name != "details"}) for entry in records(folder)]


def run(bundle: Path, out: Path, **options: Any) -> int:
    return run_bundle(bundle, out, Options(**{"budget_s": 120.0, "workers": 1, **options}))


def test_matrix_kernels(emulated: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(small_bundle.write_matrices(tmp_path / "b.zip"), out) == DONE
    found = measurements(out)
    assert Counter(str(m.status) for m in found) == {"ok": 16}
    assert {m.device for m in found} == {"emulated-gpu-9000"}
    assert {(m.workload, m.space) for m in found} == {(w, v) for w in small_bundle.small_instances() for v in ("global", "shared")}
    for entry in records(out):
        details = entry["details"]
        assert entry["time_s"] == min(entry["times_s"])
        assert details["copied_s"] == min(details["copied_times_s"]) > 0
        assert details["relative_error"] < 1e-6
        assert details["group"] == f"{entry['workload'].split()[0]}-{entry['space']}"
        assert details["registers"] == 32
    header = read_results(out)[0]
    assert header["compiler"] == "NVRTC 13.0"
    assert header["driver"] == "CUDA 13.0"
    assert "the minimum of times_s" in header["policy"]
    assert header["notes"]["mm-global"] == ["A note."]
    told = json.loads((out / "device.json").read_text())
    assert told["statuses"] == {"ok": 16}
    assert told["empty_kernel_s"] > 0
    assert sorted(path.name for path in out.iterdir()) == ["device.json", "log.txt", "results.parquet"]
    said = capfd.readouterr().out
    assert 'first of mm-global: 2 ok; what they are compared with agrees with numpy for mm {"d1":0.5' in said
    assert "16 of 16 measured; 16 records in" in said
    assert (out / "log.txt").read_text() in said


def test_every_fault_has_its_record_and_the_rest_goes_on(emulated: None, tmp_path: Path) -> None:
    names = ["right", "twice", *FAULTS, "right", "program:0", "program:1", "slow"]
    os.mkfifo(tmp_path / "pipe")
    extra = [small_bundle.BROKEN, small_bundle.ENDLESS.format(pipe=tmp_path / "pipe")]
    bundle = small_bundle.write_convolutions(tmp_path / "b.zip", names, extra)
    assert run(bundle, tmp_path / "out", run_limit_s=1.0, compile_limit_s=4.0) == DONE
    found = {m.index: m for m in measurements(tmp_path / "out")}
    assert len(found) == len(names)
    ended = {name: str(found[i].status) for i, name in enumerate(names)}
    assert ended == {"right": "ok", "twice": "ok", **FAULTS, "program:0": "compile_error", "program:1": "timeout", "slow": "ok"}
    assert found[names.index("program:0")].compile_s is not None
    assert "nonsense" in found[names.index("program:0")].error
    assert all(m.error for m in found.values() if m.time_s is None)
    assert found[1].config == {"kernel": "twice", "tile": (1, 1)}
    stages = {names[entry["index"]]: entry["details"].get("stage") for entry in records(tmp_path / "out")}
    assert (stages["right"], stages["illegal"], stages["refused"], stages["program:1"]) == (None, "run", "run", "compile")
    assert json.loads((tmp_path / "out" / "device.json").read_text())["gpu_processes"] == 4  # after illegal, traps and hangs a new one


def test_a_group_whose_first_are_wrong_is_not_measured(emulated: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = small_bundle.write_convolutions(tmp_path / "b.zip", [*3 * ["lacks_a_channel", "adds_up"], "right", "right"])
    assert run(bundle, tmp_path / "out") == WRONG
    assert [entry["index"] for entry in records(tmp_path / "out")] == [0, 1, 2, 3, 4, 5]
    said = capfd.readouterr().out
    assert "given up: conv2d: none of its first candidates is right" in said
    assert "1 of 1 groups are wrong: nothing else is measured" in said


def test_a_group_is_measured_once_one_of_its_first_is_right(emulated: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = small_bundle.write_convolutions(tmp_path / "b.zip", ["adds_up", "program:0", "adds_up", "right", "adds_up", "right"], [small_bundle.BROKEN])
    assert run(bundle, tmp_path / "out") == DONE
    assert sorted(entry["index"] for entry in records(tmp_path / "out")) == [0, 1, 2, 3, 4, 5]
    (line,) = [line for line in capfd.readouterr().out.splitlines() if "first of conv2d: " in line]
    assert sorted(line.partition("conv2d: ")[2].partition(";")[0].split(", ")) == ["1 compile_error", "1 ok", "2 wrong_result"]


def test_a_budget_that_is_too_short_ends_it_and_the_next_goes_on(emulated: None, tmp_path: Path) -> None:
    bundle = small_bundle.write_convolutions(tmp_path / "b.zip", ["right", "right"] + 60 * ["slow"])
    begun = time.monotonic()
    assert run(bundle, tmp_path / "one", budget_s=4.5) == DONE
    assert time.monotonic() - begun < 4.5
    first = records(tmp_path / "one")
    assert 2 <= len(first) < 62
    assert run(bundle, tmp_path / "two", budget_s=4.5, done=[tmp_path / "one"], most=3) == DONE
    second = records(tmp_path / "two")
    assert len(second) == 3
    assert {identity_of(entry) for entry in first}.isdisjoint(identity_of(entry) for entry in second)
    with pytest.raises(UsageError, match="results of another run; go on with them by --skip-done"):
        run(bundle, tmp_path / "two", budget_s=4.5)


def command(bundle: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "workbench.measure.cuda.run", str(bundle), "--out", str(out), "--workers", "1", "--budget-s", "100", *more]


def children() -> dict[str, str]:
    """The environment of a run elsewhere: it finds this package as the tests do."""
    return {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}


def started(bundle: Path, out: Path, lines: int, *more: str) -> subprocess.Popen[str]:
    """A run that has written so many records."""
    process = subprocess.Popen(command(bundle, out, *more), env=children(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 60
    file = out / "results.jsonl"
    while not (file.exists() and file.read_bytes().count(b"\n") > lines):
        assert time.monotonic() < end, process.communicate()
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


def processes(word: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in path.read_bytes().decode(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_killed_at_any_moment_it_leaves_what_was_measured(emulated: None, tmp_path: Path) -> None:
    names = ["right", "twice", "illegal", *40 * ["right"]]
    bundle = small_bundle.write_convolutions(tmp_path / "b.zip", names)
    out = tmp_path / "out"
    process = started(bundle, out, random.Random(0).randrange(2, 25))
    process.kill()
    process.communicate()
    with (out / "results.jsonl").open("ab") as file:
        file.write(b'{"version":1,"worklo')  # as a kill in the middle of a write leaves it
    with pytest.warns(UserWarning, match="its last line was cut short"):
        before = records(out)
    assert 0 < len(before) < len(names)
    with pytest.warns(UserWarning, match="its last line was cut short"):
        assert run(bundle, out, done=[out]) == DONE
    after = records(out)
    assert after[: len(before)] == before
    assert sorted(entry["index"] for entry in after) == list(range(len(names)))
    end = time.monotonic() + 20
    while processes(f'"parent": {process.pid}'):  # the children end with it
        assert time.monotonic() < end
        time.sleep(0.05)


def test_stopped_by_a_time_limit_it_puts_the_results_together(emulated: None, tmp_path: Path) -> None:
    bundle = small_bundle.write_convolutions(tmp_path / "b.zip", ["right", "right"] + 100 * ["slow"])
    process = started(bundle, tmp_path / "out", 3)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[0]
    assert process.returncode == STOPPED, said
    assert "stopped from outside" in said
    assert len(records(tmp_path / "out")) >= 2
    assert (tmp_path / "out" / "results.parquet").exists()


@pytest.mark.slow
def test_a_device_that_does_not_answer_does_not_hold_it_up(emulated: None, tmp_path: Path) -> None:
    """Where even killing the process does not end the wait, the budget does."""
    bundle = small_bundle.write_convolutions(tmp_path / "b.zip", ["right", "right", "hangs"])
    arguments = [str(bundle), "--out", str(tmp_path / "out"), "--workers", "1", "--budget-s", "6"]
    stuck = "import sys, time; from workbench.measure.cuda import run, gpu; gpu.Gpu.measure = lambda *a, **k: time.sleep(1000)"
    stuck += f"; sys.exit(run.main({arguments!r}))"
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", stuck], env=children(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == LATE, done.stderr
    assert "the budget is used up: ended where it stood" in done.stdout
    assert 5.5 < time.monotonic() - begun < 12
    assert records(tmp_path / "out") == []


# ---------------------------------------------------------------------------------------------------- elsewhere
ONLY = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        known = {"workbench", "numpy", "pyarrow", *sys.stdlib_module_names}
        if name.partition(".")[0] not in known and not name.startswith("_sysconfigdata"):  # a part of sysconfig
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def test_it_runs_with_the_standard_library_numpy_and_pyarrow_only(emulated: None, tmp_path: Path) -> None:
    """In every process of a run anything else is missing; and nothing is used that Python 3.10 lacks."""
    bundle = small_bundle.write_matrices(tmp_path / "b.zip", small_bundle.small_instances()[:4])
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "sitecustomize.py").write_text(ONLY)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path / "only"), str(PACKAGE.parent)))}
    blocked = subprocess.run([sys.executable, "-c", "import pandas"], env=environment, capture_output=True, text=True, check=False)
    assert "No module named 'pandas'" in blocked.stderr
    listed = "import sys; from workbench.measure.cuda import run, child, compile, expected; code = run.main(sys.argv[1:])"
    listed += "; print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('workbench')), sep='\\n', file=sys.stderr); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", listed, *command(bundle, tmp_path / "out")[3:]], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == DONE, done.stdout + done.stderr
    assert len(records(tmp_path / "out")) == 8
    files = [Path(line) for line in done.stderr.splitlines() if line.endswith(".py")]
    assert len(files) > 20
    assert {str(path): too_new(path) for path in files if too_new(path)} == {}


LATER = {"enum": {"StrEnum"}, "typing": {"Self", "Unpack", "Never", "assert_never", "TypeVarTuple", "override"}, "datetime": {"UTC"}, "tomllib": {"*"}}


def too_new(path: Path) -> list[str]:
    """What a module imports, when it is loaded, that came after Python 3.10."""
    found = []
    for node in ast.parse(path.read_text(), feature_version=(3, 10)).body:
        if isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names if {alias.name, "*"} & LATER.get(node.module or "", set())]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in LATER and "*" in LATER[alias.name]]
    return found


def test_what_is_too_new_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("import tomllib\nfrom enum import Enum, StrEnum\nif False:\n    from typing import Self\n")
    assert too_new(tmp_path / "new.py") == ["tomllib", "enum.StrEnum"]


# ---------------------------------------------------------------------------------------------------- mistakes
def test_a_mistake_is_one_line(emulated: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = small_bundle.write_matrices(tmp_path / "b.zip")
    for arguments, said in (
        ([str(tmp_path / "no.zip"), "--out", str(tmp_path / "out")], "no such file; make a bundle with"),
        ([str(bundle), "--out", str(tmp_path / "out"), "--skip-done", str(tmp_path)], "neither results.parquet nor results.jsonl"),
        ([str(bundle), "--out", str(tmp_path / "out"), "--group", "fft"], "it has no group 'fft'; it has mc-global, mc-shared, mm-global"),
        ([str(bundle), "--out", str(bundle / "out")], "name a folder that can be written"),
        ([str(bundle), "--out", str(tmp_path / "out"), "--device", "3"], "there is no CUDA device 3; there are 1"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
    with pytest.raises(SystemExit):
        main([str(bundle), "--out", "x", "--budget-s", "-3"])
    assert "invalid positive number value: '-3'" in capsys.readouterr().err
    monkeypatch.setenv("EMULATED_DEVICES", "0")
    with pytest.raises(DeviceError, match="there is no CUDA device 0; there are 0"):
        run(bundle, tmp_path / "out")


def test_results_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(MissingData):
        read_results(tmp_path)
    (tmp_path / "results.jsonl").write_text("")
    with pytest.raises(DataError, match="do not say how they were made"):
        read_results(tmp_path)
    (tmp_path / "results.jsonl").write_text('{"header": {"version": 9}}\n')
    with pytest.raises(DataError, match="results of version 9; this workbench reads up to version 1"):
        read_results(tmp_path)
    (tmp_path / "results.jsonl").write_text('{"header": {"version": 1}}\n{"version": 1, "workload": "mm {}"}\n')
    with pytest.raises(DataError, match=r"line 2 is not a record .*; restore the file, or delete the line"):
        read_results(tmp_path)
    (tmp_path / "results.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DataError, match="not a file of results"):
        read_results(tmp_path)
