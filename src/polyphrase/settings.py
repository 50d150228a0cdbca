"""Settings as frozen dataclasses: to and from mappings and YAML, unknown keys refused by name."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
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
        BadInput: for an unknown key (with the nearest known one), a missing one, or a value of the
            wrong type.
    """
    hints = typing.get_type_hints(kind)
    fields = {
        field.name: field for field in dataclasses.fields(typing.cast(Any, kind)) if field.init
    }
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(fields))}"
            )
            raise BadInput(f"{where}: unknown key {key!r}; {hint}")
    for name, field in fields.items():
        if name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise BadInput(f"{where}: the key {name!r} is missing, and it has no default")
    return kind(
        **{key: _convert(hints[key], value, f"{where}.{key}") for key, value in values.items()}
    )


def to_mapping(settings: Any) -> dict[str, Any]:
    """The plain mapping that `from_mapping` turns back into the same settings."""
    return {
        field.name: _plain(getattr(settings, field.name))
        for field in dataclasses.fields(settings)
        if field.init
    }


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, mappings merged key by key."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merge(old, value)
        merged[key] = value
    return merged


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
    return yaml.dump(to_mapping(settings), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Quotes a text with unprintable characters: unquoted, PyYAML loses U+0085 and its like."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    if isinstance(value, Mapping):
        return {key: _plain(element) for key, element in value.items()}
    return value


_MISFIT: Any = object()


def _convert(hint: Any, value: Any, where: str) -> Any:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    options = typing.get_args(hint) if is_union else (hint,)
    for option in options:
        fitted = _fit(option, value, where)
        if fitted is not _MISFIT:
            return fitted
    shown = "null" if value is None else repr(value)
    raise BadInput(f"{where}: {shown} is not {' or '.join(map(_name, options))}")


def _fit(option: Any, value: Any, where: str) -> Any:
    """The value as the type `option` has it, or `_MISFIT`."""
    kind, arguments = typing.get_origin(option) or option, typing.get_args(option)
    if kind is Any:
        return value
    if kind is typing.Literal:  # by type too, as 1 == True
        same = (known for known in arguments if known == value and type(known) is type(value))
        return next(same, _MISFIT)
    if isinstance(value, bool):
        return value if kind is bool else _MISFIT
    if kind is float and isinstance(value, int | float | str):
        try:
            return float(value)  # YAML 1.1 reads 1e-4 as a text
        except ValueError:
            return _MISFIT
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return from_mapping(typing.cast(type[Any], kind), value, where)
    if kind in (tuple, list) and isinstance(value, list | tuple):
        return _fit_elements(kind, arguments, value, where)
    return value if isinstance(value, kind) else _MISFIT


def _fit_elements(kind: type, arguments: tuple[Any, ...], values: Sequence[Any], where: str) -> Any:
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(values) != len(arguments):
            raise BadInput(f"{where}: {list(values)!r} is not a list of {len(arguments)} values")
        hints = arguments
    else:
        hints = (arguments[0] if arguments else Any,) * len(values)
    return kind(
        _convert(hint, value, f"{where}[{i}]")
        for i, (hint, value) in enumerate(zip(hints, values, strict=True))
    )


def _name(option: Any) -> str:
    """What to call a type in a message."""
    kind = typing.get_origin(option) or option
    if kind is typing.Literal:
        return "one of " + ", ".join(repr(value) for value in typing.get_args(option))
    if dataclasses.is_dataclass(kind):
        return "a mapping"
    names = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        tuple: "a list",
        list: "a list",
        dict: "a mapping",
        type(None): "null",
    }
    return names.get(kind, str(kind))
