"""What an audit found, and the verdict with its thresholds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AuditReport", "Duplicates", "Impossible", "Peak", "TaskAudit", "judge"]

SIGNAL_MIN_R2 = 0.26  # a large effect, f^2 = 0.35, by Cohen (1988), chapter 9
WRONG_MAX_SHARE = 0.01
CONSTANT_RATIO = 1.1
CONSTANT_MIN_CONFIGURATIONS = 20
TASK_MIN_ROWS = 60  # 20 rows a fold
NOTE_ORDER_R2 = 0.1
NOTE_SPREAD = 2.0


@dataclass(frozen=True)
class TaskAudit:
    """One workload, or all rows where workloads are not repeated.

    Attributes:
        task: the parameters that tell it from others, or "all".
        rows: timed rows.
        configurations: different inputs among them.
        signal_r2: R2 of log time from the inputs, 3 folds, a configuration's repeats in one fold; None if the times are equal.
        order_r2: R2 of log time from the row number alone, same folds. A file in the order of its knobs has some without harm.
        order_beyond_r2: share of the variance of log time that the row number explains of what the inputs left unexplained.
        time_ratio: slowest time / fastest.
    """

    task: str
    rows: int
    configurations: int
    signal_r2: float | None
    order_r2: float | None
    order_beyond_r2: float | None
    time_ratio: float

    @property
    def constant(self) -> bool:
        """Whether many configurations have one time."""
        return self.time_ratio < CONSTANT_RATIO and self.configurations >= CONSTANT_MIN_CONFIGURATIONS


@dataclass(frozen=True)
class Duplicates:
    """Timed rows that repeat the inputs of another, and the spread (slowest / fastest) of the configurations that have several; None without any."""

    rows: int
    share: float
    spread_median: float | None
    spread_p90: float | None


@dataclass(frozen=True)
class Impossible:
    """Configurations that cannot launch. `rules` names the limits that could be checked from the columns; the counts are 0 if none could."""

    rules: tuple[str, ...]
    rows: int
    timed: int
    share_of_timed: float


@dataclass(frozen=True)
class Peak:
    """Speed against the device's peak; None where the peak or the operations are not known."""

    peak_gflops: float | None
    highest_share: float | None
    above: int | None
    share_above: float | None


@dataclass(frozen=True)
class AuditReport:
    """What `audit` found.

    Attributes:
        name: the data set.
        passed: the verdict.
        reasons: why it failed, a sentence each; empty if it passed.
        notes: what a reader should know though it does not decide.
        rows, timed_rows: all attempts, and those with a time.
        status_share: status -> share of the rows.
        signal_r2, order_r2, order_beyond_r2: medians over tasks, None if no task could be tested.
        tasks: one entry a task, in the order of the source.
        skipped_tasks: workloads with too few rows to test.
    """

    name: str
    passed: bool
    reasons: list[str]
    notes: list[str]
    rows: int
    timed_rows: int
    status_share: dict[str, float]
    signal_r2: float | None
    order_r2: float | None
    order_beyond_r2: float | None
    duplicates: Duplicates
    impossible: Impossible
    peak: Peak
    tasks: list[TaskAudit] = field(default_factory=list)
    skipped_tasks: int = 0

    @property
    def verdict(self) -> str:
        """The verdict in words: "passed", "failed", or that the rows are too few to tell, which speaks neither for nor against them."""
        if self.passed:
            return "passed"
        return "too few rows to tell" if 0 < self.timed_rows < TASK_MIN_ROWS else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, with the thresholds of the verdict."""
        record = dataclasses.asdict(self)
        record["impossible"]["rules"] = list(self.impossible.rules)
        record["verdict"] = self.verdict
        for task, entry in zip(record["tasks"], self.tasks, strict=True):
            task["constant"] = entry.constant
        record["thresholds"] = {
            "signal_min_r2": SIGNAL_MIN_R2,
            "wrong_max_share": WRONG_MAX_SHARE,
            "constant_ratio": CONSTANT_RATIO,
            "constant_min_configurations": CONSTANT_MIN_CONFIGURATIONS,
        }
        return record


def judge(report: AuditReport, *, has_inputs: bool) -> AuditReport:
    """The report with its verdict, reasons and notes. `has_inputs`: whether the data set has any parameter or knob column."""
    reasons = _reasons(report, has_inputs)
    return dataclasses.replace(report, passed=not reasons, reasons=reasons, notes=_notes(report))


def _reasons(report: AuditReport, has_inputs: bool) -> list[str]:
    if not has_inputs:
        return ["no parameter or knob columns: nothing that could explain a time"]
    if report.timed_rows < TASK_MIN_ROWS:
        return [f"{report.timed_rows} timed rows; at least {TASK_MIN_ROWS} are needed"]
    reasons = []
    constant = sum(task.constant for task in report.tasks)
    if report.tasks and 2 * constant >= len(report.tasks):
        reasons.append(f"times hardly vary (max/min below {CONSTANT_RATIO}) in {constant} of {len(report.tasks)} tasks")
    if report.signal_r2 is None or report.order_beyond_r2 is None:
        reasons.append("no task has varying times to explain")
    else:
        if report.signal_r2 < SIGNAL_MIN_R2:
            reasons.append(f"inputs explain too little of log time: median R2 {report.signal_r2:.2f}, below {SIGNAL_MIN_R2}")
        if report.order_beyond_r2 > max(0.0, report.signal_r2):
            reasons.append(f"row order explains more than inputs do: R2 {report.order_beyond_r2:.2f} beyond them against {report.signal_r2:.2f}")
    if report.impossible.share_of_timed > WRONG_MAX_SHARE:
        reasons.append(f"{report.impossible.share_of_timed:.1%} of the times belong to configurations that cannot run ({', '.join(report.impossible.rules)})")
    if report.peak.share_above is not None and report.peak.share_above > WRONG_MAX_SHARE:
        reasons.append(f"{report.peak.share_above:.1%} of the times beat the device's peak of {report.peak.peak_gflops:g} GFLOP/s")
    return reasons


def _notes(report: AuditReport) -> list[str]:
    notes = []
    weak = [t for t in report.tasks if t.signal_r2 is not None and t.signal_r2 < SIGNAL_MIN_R2]
    if weak and len(report.tasks) > 1:
        named = ", ".join(t.task for t in weak[:3]) + (", ..." if len(weak) > 3 else "")
        notes.append(f"{len(weak)} of {len(report.tasks)} tasks have R2 below {SIGNAL_MIN_R2}: {named}")
    if report.order_beyond_r2 is not None and report.order_beyond_r2 > NOTE_ORDER_R2:
        notes.append(
            f"row order explains {report.order_beyond_r2:.0%} of the variance of log time beyond the inputs (drift, or blocks of rows under other conditions)"
        )
    spread = report.duplicates.spread_median
    if spread is not None and spread > NOTE_SPREAD:
        notes.append(f"repeats of a configuration differ by {spread:.1f}x (median): take the median of repeats, and expect no better from a model")
    if report.impossible.timed:
        notes.append(f"{report.impossible.timed} of {report.impossible.rows} configurations that cannot run have a time ({', '.join(report.impossible.rules)})")
    if report.peak.above and report.peak.highest_share is not None:
        notes.append(f"{report.peak.above} times beat the device's peak, the highest at {report.peak.highest_share:.0%} of it")
    if report.skipped_tasks:
        notes.append(f"{report.skipped_tasks} workloads have fewer than {TASK_MIN_ROWS} timed rows and were not tested one by one")
    return notes
