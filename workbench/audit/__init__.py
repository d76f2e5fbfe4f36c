"""Is there signal in a data set? Asked before anything learns from it.

A frame of times can be well-formed and still hold no labels: published times exist that knobs do not explain, that follow the row number, and that impossible
configurations have too. `audit` measures that and gives a verdict by rules that are fixed and not fitted to any set:

* signal: median over tasks of the cross-validated R2 of log time, at least 0.26 (Cohen 1988, chapter 9: a large effect, f^2 = 0.35).
* order: what the row number explains beyond the inputs must stay below what the inputs explain.
* impossible configurations (CUDA C++ Programming Guide, technical specifications: 1,024 threads a block, 48 KiB of static shared memory; AMD: 64 KiB of LDS a
  workgroup) and speeds above the device's peak: at most 1% of the times.
* constant times: fewer than half of the tasks have max/min below 1.1 over 20 configurations or more.

A task is a workload with enough rows. Where no workload has (every row its own matrix sizes), all rows are one task and sizes are inputs beside the knobs.
"""

from __future__ import annotations

from workbench.audit.checks import audit
from workbench.audit.report import AuditReport, Duplicates, Impossible, Peak, TaskAudit

__all__ = ["AuditReport", "Duplicates", "Impossible", "Peak", "TaskAudit", "audit"]
