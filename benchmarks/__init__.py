"""Times this package against plain Spark, delta-spark and deltalake, interleaved: see ``python -m benchmarks --help``."""
