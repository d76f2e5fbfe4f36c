"""Killed at random moments, a series loses no measurement that was handed out, and measures none twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter

from workbench.data.store import Store

COUNT = 60

SCRIPT = """
import json, sys
from workbench.data.store import Store
from workbench.kernels import kernel
from workbench.measure.native import Instance, Runner
from workbench.schema import Device

path, command = sys.argv[1], json.loads(sys.argv[2])
instances = [Instance(kernel("mv").workload({"m": m, "n": 2, "d1": 1.0})) for m in range(1, int(sys.argv[3]) + 1)]
with Store(path) as store, Runner("eigen", store, command=command, device=Device("some-cpu", "cpu")) as runner:
    print("ready", flush=True)
    for measurement in runner.measure(instances):
        print(measurement.workload.params["m"], flush=True)
print("finished", flush=True)
"""


def test_no_acknowledged_record_is_lost_by_kill_9(tmp_path, fake):
    path = tmp_path / "store.db"
    command = [sys.executable, "-c", SCRIPT, str(path), json.dumps(fake({"delay": 0.01, 17: "abort"})), str(COUNT)]
    generator = random.Random(5)
    acknowledged: list[int] = []
    kills = 0
    for _ in range(20):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            wanted = generator.randint(1, 6) if kills < 5 else COUNT + 2
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
        acknowledged += [int(line) for line in lines if line.isdigit()]
        with Store(path) as store:
            stored = Counter(record.workload.params["m"] for record in store.rows())
        assert set(acknowledged) <= set(stored)
        assert set(stored.values()) == {1}
        if lines and lines[-1] == "finished":
            break
    assert kills == 5
    assert sorted(stored) == list(range(1, COUNT + 1))
    assert len(acknowledged) == len(set(acknowledged))
