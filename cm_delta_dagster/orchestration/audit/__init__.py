"""Audited assets: their checks read the rows of a step before any reader of the table sees them.

``audited`` has the definitions, ``audit_check`` one check, and ``step_audit`` what happens in a step.
"""
