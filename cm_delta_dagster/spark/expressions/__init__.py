"""Schemas, columns, conditions and partition values between Delta and Spark."""
