"""Streams of the rows that commits add to a table: their state, and their forms for Arrow and for Spark."""
