"""Schemas: types, their JSON, evolution, void columns."""
