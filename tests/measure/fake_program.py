"""Stands for a matrix program: answers as one does for matrix times vector, and misbehaves where its first argument, a JSON object m -> fault, says so.

An instance with m rows takes m microseconds. Only the standard library, so that it starts at once.
"""

import json
import os
import subprocess
import sys
import time
from array import array


def answer(request, dump, seconds=None):
    m, n = request["m"], request["n"]
    seconds = m * 1e-6 if seconds is None else seconds
    if request["dump"]:
        filled = min(m * n, max(1, int(request["d1"] * m * n + 0.5)))
        a = [1.0] * filled + [0.0] * (m * n - filled)
        rows = [sum(a[i * n : (i + 1) * n]) for i in range(m)]
        with open(dump, "wb") as file:
            array("f", [*a, *[1.0] * n, *rows]).tofile(file)
    return {"id": request["id"], "status": "ok", "calls": 1, "times": [seconds * 3, seconds, seconds * 2]}


def misbehave(fault, request, dump):
    if fault == "abort":
        os.abort()
    if fault == "exit":
        sys.stderr.write("first word\nlast word\n")
        sys.exit(3)
    if fault == "hang":
        while True:
            pass
    if fault == "sleep":
        time.sleep(3600)
    if fault == "allocate":
        kept = []
        try:
            while True:
                kept.append(bytearray(1 << 26))
        except MemoryError:
            return {"id": request["id"], "status": "run_error", "error": "out of memory"}
    if fault == "garbage":
        return "Segmentation fault, or so"
    if fault == "flood":
        sys.stdout.write("x" * (2 << 20))
        sys.stdout.flush()
        time.sleep(3600)
    if fault == "stale":
        return {**answer(request, dump), "id": request["id"] - 1}
    if fault == "list":
        return [1, 2]
    if fault == "no times":
        return {"id": request["id"], "status": "ok"}
    if fault == "text times":
        return {**answer(request, dump), "times": ["1", "2", "3"]}
    if fault == "one time":
        return {**answer(request, dump), "times": [1e-6]}
    if fault == "clock":
        return answer(request, dump, 0.0)
    if fault == "backwards":
        return answer(request, dump, -1e-6)
    if fault == "nan":
        return answer(request, dump, float("nan"))
    if fault == "close":
        os.close(1)
        time.sleep(3600)
    if fault == "orphan":
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        with open(dump, "w") as file:
            file.write(str(process.pid))
        os.abort()
    raise ValueError(fault)


faults, dump = json.loads(sys.argv[1]), sys.argv[2]
for line in sys.stdin:
    request = json.loads(line)
    if request["kernel"] == "ping":
        print(json.dumps({"id": request["id"], "status": "ok"}), flush=True)
        continue
    time.sleep(faults.get("delay", 0))
    fault = faults.get(str(request["m"]))
    reply = misbehave(fault, request, dump) if fault else answer(request, dump)
    print(reply if isinstance(reply, str) else json.dumps(reply), flush=True)
