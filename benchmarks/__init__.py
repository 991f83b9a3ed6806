"""What design section 9 measures, run by ``python -m benchmarks`` and printed as one table.

Enters: the package through its outside interfaces (``runjobs``, public names, ``JobRun``), and the
raw ``bullmq`` package. Leaves: figures, each from a child process of its own, with their spread.
"""
