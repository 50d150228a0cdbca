"""Settings as frozen dataclasses: to and from plain mappings and YAML, unknown keys refused by name."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from .errors import BadInput

T = TypeVar("T")


def from_mapping(kind: type[T], values: Mapping[str, Any], where: str = "settings") -> T:
    """Build a settings dataclass from a mapping, nested dataclasses included.

    Args:
        kind: the dataclass to build.
        values: its fields by name; what is missing keeps its default.
        where: how to call the mapping in a message.

    Raises:
        BadInput: for an unknown key (with the nearest known one) or a value of the wrong type.
    """
    hints = typing.get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(typing.cast(Any, kind)) if field.init}
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            raise BadInput(f"{where}: unknown key {key!r}; {hint}")
    converted = {
        key: _convert(hints[key], value, f"{where}.{key}") for key, value in values.items()
    }
    return kind(**converted)


def to_mapping(settings: Any) -> dict[str, Any]:
    """The plain mapping that `from_mapping` turns back into the same settings."""
    return dataclasses.asdict(settings)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read one mapping from a YAML file."""
    path = Path(path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}; give a YAML file that exists") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadInput(f"{path}: expected 'key: value' lines, found a {type(values).__name__}")
    return values


def to_yaml(settings: Any) -> str:
    """The settings as YAML, fields in the order of their declaration."""
    return yaml.safe_dump(to_mapping(settings), sort_keys=False, allow_unicode=True)


def _convert(hint: Any, value: Any, where: str) -> Any:
    options = _options(hint)
    if value is None:
        if type(None) in options:
            return None
    elif isinstance(value, Mapping):
        for option in options:
            if dataclasses.is_dataclass(option):
                return from_mapping(typing.cast(type[Any], option), value, where)
    for option in options:
        literals = typing.get_args(option) if typing.get_origin(option) is typing.Literal else None
        if literals is not None:
            if value in literals:
                return value
            continue
        origin = typing.get_origin(option) or option
        if origin is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if origin is float and isinstance(value, str):  # YAML 1.1 reads 1e-4 as a string
            try:
                return float(value)
            except ValueError:
                continue
        if origin in (tuple, list) and isinstance(value, (list, tuple)):
            return origin(value)
        if origin is Any or (isinstance(origin, type) and isinstance(value, origin)):
            if origin is int and isinstance(value, bool):
                continue
            return value
    wanted = " or ".join(_name(option) for option in options)
    raise BadInput(f"{where}: {value!r} is not {wanted}")


def _options(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(typing.get_args(hint))
    return (hint,)


def _name(option: Any) -> str:
    if typing.get_origin(option) is typing.Literal:
        return "one of " + ", ".join(repr(value) for value in typing.get_args(option))
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return names.get(
        option, "null" if option is type(None) else getattr(option, "__name__", str(option))
    )
