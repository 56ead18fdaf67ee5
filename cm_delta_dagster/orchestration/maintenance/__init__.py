"""Maintenance as jobs, schedules and sweeps."""
