"""The plainest right torch for every kernel: what the CPU runs, and what a kernel must equal."""
