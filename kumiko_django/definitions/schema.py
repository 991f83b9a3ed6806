"""Payload schemas: a pydantic model, a dataclass or a TypedDict, checked at both ends (P71)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from kumiko_django.exceptions import DefinitionError, PayloadError


class PayloadSchema:
    """A schema, compiled once, with the two conversions that a payload goes through."""

    def __init__(self, schema: Any, where: str) -> None:
        """Compile ``schema``.

        Raises:
            DefinitionError: It is no type that pydantic can validate.
        """
        if not isinstance(schema, type) and not hasattr(schema, "__pydantic_core_schema__"):
            raise DefinitionError(
                f"{where}: schema must be a pydantic model, a dataclass or a TypedDict class, "
                f"not {schema!r}."
            )
        self.type = schema
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(schema)
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise DefinitionError(
                f"{where}: schema={schema.__name__} cannot be turned into a validator: "
                f"{_first_line(error)}"
            ) from error

    def dump(self, payload: object) -> dict[str, Any]:
        """Validate what a caller gives and turn it into JSON values.

        Raises:
            PayloadError: It does not fit; ``error.path`` names the first field that is wrong.
        """
        try:
            value = self._adapter.validate_python(payload)
            dumped = self._adapter.dump_python(value, mode="json", by_alias=True)
        except ValidationError as error:
            raise _payload_error(error) from error
        if not isinstance(dumped, Mapping):
            raise PayloadError(
                f"payload must be an object; the schema {self.type.__name__} gives "
                f"{type(dumped).__name__}."
            )
        return dict(dumped)

    def load(self, payload: Mapping[str, Any]) -> Any:
        """Turn JSON values back into what the handler is written for.

        Raises:
            PayloadError: They do not fit, e.g. because the schema changed since the dispatch.
        """
        try:
            # JSON mode, so that strict models take an ISO text for a datetime.
            return self._adapter.validate_json(json.dumps(payload))
        except ValidationError as error:
            raise _payload_error(error) from error


def _payload_error(error: ValidationError) -> PayloadError:
    # include_input=False: the value may be personal data, and messages end up in logs.
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    paths = [".".join(["payload", *map(str, problem["loc"])]) for problem in problems]
    shown = "; ".join(
        f"{path}: {problem['msg']}" for path, problem in zip(paths[:5], problems[:5], strict=True)
    )
    more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
    return PayloadError(f"The payload does not fit its schema: {shown}{more}.", path=paths[0])


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
