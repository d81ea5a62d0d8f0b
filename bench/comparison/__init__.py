"""The parts of bench/compare: the machine, the processes that it measures, the groups of rows, and the table."""
