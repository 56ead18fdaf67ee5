"""Schemas: types, their JSON, Arrow types, evolution, interval types, void columns."""
