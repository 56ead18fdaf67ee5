"""Times this package against plain Spark, delta-spark and deltalake, interleaved in one run. See ``python -m benchmarks --help``."""
