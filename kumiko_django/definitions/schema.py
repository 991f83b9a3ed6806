"""Payload schemas: a pydantic model, a dataclass or a TypedDict, checked at both ends (P71)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from django.utils.functional import Promise
from pydantic import (
    BaseModel,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    ValidationError,
)

from kumiko_django.exceptions import DefinitionError, PayloadError
from kumiko_django.types.jsonable import to_jsonable

_SECRETS: Final = (Secret, SecretStr, SecretBytes)
_LAZY_DEPTH: Final = 8


class PayloadSchema:
    """A schema, compiled once, with the two conversions that a payload goes through."""

    def __init__(self, schema: Any, where: str) -> None:
        """Compile ``schema``.

        Raises:
            DefinitionError: It is no model, dataclass or TypedDict, or pydantic cannot use it.
        """
        if not _has_named_fields(schema):
            raise DefinitionError(
                f"{where}: schema must be a pydantic model, a dataclass or a TypedDict class, "
                f"not {schema!r}."
            )
        self.type = schema
        self._where = where
        self._adapter = self._compile()

    def complete(self) -> None:
        """Resolve what the schema's annotations name and was not defined yet when the job was.

        Raises:
            DefinitionError: It is still not defined.
        """
        self._complete_adapter()

    def dump(self, payload: object) -> dict[str, Any]:
        """Validate what a caller gives and turn it into JSON values.

        Raises:
            PayloadError: It does not fit; ``error.path`` names the first field that is wrong. Or it
                would not come back as it is.
        """
        adapter = self._complete_adapter()
        try:
            value = _validate(adapter, payload)
        except ValidationError as error:
            raise _payload_error(error, "The payload does not fit its schema") from error
        dumped = self._write(adapter, value)
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
        adapter = self._complete_adapter()
        try:
            # JSON mode, so that strict models take an ISO text for a datetime.
            return adapter.validate_json(json.dumps(payload))
        except ValidationError as error:
            raise _payload_error(error, "The payload does not fit its schema") from error
        except Exception as error:
            # A validator of the schema's own that breaks is no fault of the worker's.
            raise PayloadError(
                f"The schema {self.type.__name__} failed on the payload: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _write(self, adapter: TypeAdapter[Any], value: Any) -> Any:
        # round_trip: without computed fields, and Json[...] fields as the text that they came as.
        as_read: dict[str, Any] = {"by_alias": True, "round_trip": True}
        plain: Any = None
        try:
            plain = adapter.dump_python(value, **as_read)
            _refuse_lossy(plain, "payload")
            dumped = adapter.dump_python(value, mode="json", **as_read)
            text = json.dumps(dumped)
        except PayloadError:
            raise
        except (ValueError, RecursionError) as error:
            to_jsonable(plain)  # knows the path to what cannot travel, where it refuses it too
            raise PayloadError(
                f"The payload cannot be written by its schema {self.type.__name__}: {error}"
            ) from error
        try:
            adapter.validate_json(text)
        except ValidationError as error:
            what = (
                f"The schema {self.type.__name__} cannot read what it writes. Use alias= rather "
                "than different aliases for both ways, and exclude no required field"
            )
            raise _payload_error(error, what) from error
        return dumped

    def _compile(self) -> TypeAdapter[Any] | None:
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self.type)
        except PydanticUndefinedAnnotation:
            return None  # may still be defined further down in the module
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise DefinitionError(
                f"{self._where}: schema={self.type.__name__} cannot be turned into a validator: "
                f"{_first_line(error)}"
            ) from error
        # Older versions of pydantic have no such mark, and raise above.
        return adapter if getattr(adapter, "pydantic_complete", True) else None

    def _complete_adapter(self) -> TypeAdapter[Any]:
        if self._adapter is None:
            self._adapter = self._compile()
        if self._adapter is None:
            raise DefinitionError(
                f"{self._where}: schema={self.type.__name__} has an annotation that names "
                "something undefined. Import it at the top of the schema's module, not under "
                "TYPE_CHECKING."
            )
        return self._adapter


def _has_named_fields(schema: Any) -> bool:
    if not isinstance(schema, type):
        return False
    if issubclass(schema, BaseModel):
        return not issubclass(schema, RootModel)
    is_typed_dict = issubclass(schema, dict) and hasattr(schema, "__required_keys__")
    return is_typed_dict or dataclasses.is_dataclass(schema)


def _validate(adapter: TypeAdapter[Any], payload: object) -> Any:
    try:
        return adapter.validate_python(payload)
    except ValidationError:
        # Pydantic does not take Django's lazy texts for texts. They are rare, so they are looked
        # for only where something does not fit.
        resolved, found = _resolve_lazy(payload)
        if not found:
            raise
    return adapter.validate_python(resolved)


def _resolve_lazy(value: Any, depth: int = 0) -> tuple[Any, bool]:
    """``value`` with plain texts in the place of lazy ones, and whether there were any."""
    if isinstance(value, Promise):
        return str(value), True
    if depth >= _LAZY_DEPTH or not isinstance(value, dict | list | tuple):
        return value, False
    if isinstance(value, dict):
        pairs = {key: _resolve_lazy(item, depth + 1) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, any(
            hit for _, hit in pairs.values()
        )
    items = [_resolve_lazy(item, depth + 1) for item in value]
    return [item for item, _ in items], any(hit for _, hit in items)


def _refuse_lossy(value: object, path: str) -> None:
    """Refuse what pydantic writes without complaint, and as something else."""
    if isinstance(value, float) and not math.isfinite(value):
        raise PayloadError(f"{path} is {value!r}, which JSON does not have.", path=path)
    if isinstance(value, _SECRETS):
        raise PayloadError(
            f"{path} is a secret, of which only stars would arrive. Send the name of a place where "
            "the handler finds it.",
            path=path,
        )
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_lossy(item, f"{path}.{key}")
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for index, item in enumerate(value):
            _refuse_lossy(item, f"{path}[{index}]")


def _payload_error(error: ValidationError, what: str) -> PayloadError:
    # include_input=False: the value may be personal data, and messages end up in logs.
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    paths = [_path(problem["loc"]) for problem in problems]
    shown = "; ".join(
        f"{path}: {problem['msg']}" for path, problem in zip(paths[:5], problems[:5], strict=True)
    )
    more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
    return PayloadError(f"{what}: {shown}{more}.", path=paths[0])


def _path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "payload" + "".join(parts)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
