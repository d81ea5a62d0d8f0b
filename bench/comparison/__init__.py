"""What bench/compare consists of: the machine, the processes it measures, the groups of rows, and the table."""
