"""Rows of the database as values, and expressions over several tables. No operation of the catalog is here."""
