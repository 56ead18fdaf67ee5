"""What finds and writes the rows of a change: Spark, or Arrow in this process."""
