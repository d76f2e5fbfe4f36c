"""Libraries that a board loads and that misbehave when they are called, one after the other: what they do is C behind the name that TVM looks for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from workbench.measure.tvm_builder import Tir

CODE = 'extern "C" int __tvm_ffi_main(void* self, const void* arguments, int count, void* result) {{ {} return 0; }}'
CRASH, HANG, NOTHING = "__builtin_trap();", "volatile int forever = 1; while (forever) {}", ""


class Faulty(Tir):
    """Crashes, hangs, writes nothing, and from then on builds what it should."""

    def __init__(self, *setup: Any) -> None:
        super().__init__(*setup)
        self.left = [CRASH, HANG, NOTHING]

    def build(self, program: Any, path: Path) -> None:
        if not self.left:
            return super().build(program, path)
        source = path.with_suffix(".cpp")
        source.write_text(CODE.format(self.left.pop(0)))
        subprocess.run([*self._link, "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
        source.unlink()
        return None
