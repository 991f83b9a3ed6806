"""What of the kit there is on this system."""

from __future__ import annotations

import sys

collect_ignore = [] if sys.platform == "linux" else ["test_warm.py"]
