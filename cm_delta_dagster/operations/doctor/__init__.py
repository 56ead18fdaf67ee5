"""DOCTOR: checks one table, reports findings and carries out repairs that are provably safe.

``observation`` queries catalog and storage. ``check_commits`` (with ``commit_copies``) checks the commits, ``check_state`` the
files that are derived from them, ``check_log`` the log as a whole, ``check_files`` and ``check_footers`` the data files;
``check_table`` calls them in order. ``repair_plan`` selects repairs, ``repairs`` carries them out, ``doctor`` is the operation.
"""

from cm_delta_dagster.operations.doctor.doctor import apply_repair, doctor, plan_repair, repair_table
from cm_delta_dagster.operations.doctor.findings import Depth, Finding, Problem, Repair, Severity
from cm_delta_dagster.operations.doctor.repair_plan import DoctorReport, RepairPlan, RepairStep

__all__ = [
    "Depth",
    "DoctorReport",
    "Finding",
    "Problem",
    "Repair",
    "RepairPlan",
    "RepairStep",
    "Severity",
    "apply_repair",
    "doctor",
    "plan_repair",
    "repair_table",
]
