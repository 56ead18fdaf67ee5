"""Dagster components: what ``dg list components`` shows and ``dg scaffold defs`` creates.

``connection`` has the attributes that several components share, ``scaffolding`` writes the first ``defs.yaml``, ``discovery``
reads the tables of a scope. Each other module is one component.
"""
