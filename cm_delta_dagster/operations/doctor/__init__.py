"""DOCTOR: examines one table, says what is wrong and repairs what is provably safe.

``observation`` asks catalog and storage. ``commit_copies`` and ``commit_check`` judge the commits, ``state_check`` the files that
are derived from them, ``log_check`` the log as a whole, ``file_check`` and ``deep_check`` the data files; ``examination`` calls
them in order. ``repair_plan`` decides what is done, ``repairs`` does it, and ``diagnosis`` is the operation.
"""

from cm_delta_dagster.operations.doctor.diagnosis import DoctorReport, doctor, plan_repair
from cm_delta_dagster.operations.doctor.findings import Depth, Finding, Problem, Repair, Severity
from cm_delta_dagster.operations.doctor.repair_plan import RepairPlan, RepairStep

__all__ = [
    "Depth",
    "DoctorReport",
    "Finding",
    "Problem",
    "Repair",
    "RepairPlan",
    "RepairStep",
    "Severity",
    "doctor",
    "plan_repair",
]
