"""What of a handler's return value is kept: JSON, and small. Never a reason to fail (P32)."""

from __future__ import annotations

import json
from typing import Any, Final

from kumiko_django.exceptions import PayloadError
from kumiko_django.types.jsonable import JSON, to_jsonable

MAX_RESULT_CHARS: Final = 16 * 1024


def keepable(value: Any) -> tuple[JSON, str]:
    """The value as JSON, or None and the reason why it is not kept."""
    if value is None:
        return None, ""
    try:
        result = to_jsonable(value, "result")
        size = len(json.dumps(result, allow_nan=False))
    except (PayloadError, RecursionError) as error:
        return None, f"result not kept: {error}"
    except Exception as error:  # noqa: BLE001  (odd mappings may raise anything when read)
        return None, f"result not kept: {type(error).__name__}: {error}"
    if size > MAX_RESULT_CHARS:
        return None, f"result not kept: {size:,} characters; {MAX_RESULT_CHARS:,} is the limit"
    return result, ""
