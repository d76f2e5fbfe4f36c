"""Killed at random moments, a series loses no measurement that was handed out, and measures none more often than its passes say."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter

import pytest

from workbench.data.store import Store

SCRIPT = """
import json, sys
from workbench.data.store import Store
from workbench.kernels import kernel
from workbench.measure.native import Instance, Runner
from workbench.measure.passes import rounds
from workbench.schema import Device

path, command = sys.argv[1], json.loads(sys.argv[2])
instances = [Instance(kernel("mv").workload({"m": m, "n": 2, "d1": 1.0})) for m in range(1, int(sys.argv[3]) + 1)]
with Store(path) as store, Runner("eigen", store, command=command, device=Device("some-cpu", "cpu")) as runner:
    print("ready", flush=True)
    for group, times in rounds(instances, int(sys.argv[4])):
        for measurement in runner.measure(group, times=times):
            print(measurement.workload.params["m"], flush=True)
print("finished", flush=True)
"""


@pytest.mark.parametrize(("count", "passes"), [(50, 1), (17, 3)])
def test_no_acknowledged_record_is_lost_by_kill_9(tmp_path, fake, count, passes):
    path = tmp_path / "store.db"
    command = [sys.executable, "-c", SCRIPT, str(path), json.dumps(fake({"delay": 0.01, 17: "abort"})), str(count), str(passes)]
    generator = random.Random(5)
    expected = Counter(dict.fromkeys(range(1, count + 1), passes))
    expected.update([1 + i * count // 2 for i in range(2)] if count > 33 else [1])  # measured once more at the end
    acknowledged: Counter[int] = Counter()
    kills = 0
    for _ in range(20):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            wanted = generator.randint(1, 9) if kills < 5 else expected.total() + 2
            lines = []
            for line in process.stdout:
                lines.append(line.strip())
                if len(lines) == wanted:
                    # Not at the moment of an acknowledgement but somewhere in what follows it.
                    try:
                        process.wait(generator.random() * 0.03)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        kills += 1
                    break
            lines += [line.strip() for line in process.stdout]
        acknowledged.update(int(line) for line in lines if line.isdigit())
        with Store(path) as store:
            stored = Counter(int(record.workload.params["m"]) for record in store.rows())
        assert acknowledged <= stored <= expected
        if lines and lines[-1] == "finished":
            break
    assert kills == 5
    assert stored == expected
