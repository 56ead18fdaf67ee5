"""What assets declare and what their events report: metadata, partitions, types of inputs and outputs."""
