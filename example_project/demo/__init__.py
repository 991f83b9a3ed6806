"""``make demo`` and ``make serve``: the example with everything around it, as real processes.

``site`` starts the servers, the workers and the web server; ``story`` sends the requests; ``watch``
follows the runs; ``checks`` compares what came out with what was told; ``report`` shows it.
"""

from __future__ import annotations
