"""Turns JSON objects (dicts) into messages and back, by the rules of docs/contract.md. Pure; any thread."""

from __future__ import annotations

import difflib
import json
import math
import numbers
from decimal import Decimal
from typing import Any, Mapping, Sequence

from google.protobuf import descriptor, message, struct_pb2

from moeplan.errors import InvalidInput, mismatch

_Field = descriptor.FieldDescriptor
_VALUE = struct_pb2.Value.DESCRIPTOR.full_name
_STRUCT = struct_pb2.Struct.DESCRIPTOR.full_name
_INT32 = range(-(2**31), 2**31)


def read(message_: message.Message, value: Mapping[str, Any], path: str = "") -> None:
    """Fills a message from a JSON object, strictly: what does not fit is refused with the path of its field.

    None is the same as absent; a number may be any real number, numpy's too, but not a bool or a string. Raises
    InvalidInput, and leaves the message filled in part.
    """
    if not isinstance(value, Mapping):
        raise mismatch(path, _found(value), "an object")
    fields = {field.json_name: field for field in message_.DESCRIPTOR.fields}
    for name, item in value.items():
        if name not in fields:
            raise _unknown_field(path, str(name), list(fields))
        if item is not None:
            _check_alternatives(message_, fields[name], path)
            _read_field(message_, fields[name], item, _join(path, name))


def read_fields(request: message.Message, fields: Mapping[str, Any]) -> None:
    """Fills a request from keyword arguments, which are named as its fields. Raises InvalidInput."""
    names = {field.name: field.json_name for field in request.DESCRIPTOR.fields}
    read(request, {names.get(name, name): value for name, value in fields.items()})


def to_dict(message_: message.Message) -> dict[str, Any]:
    """The JSON object of a message: every scalar and list, zeros and empty lists too; what is absent is left out."""
    return {
        field.json_name: _field_value(message_, field)
        for field in message_.DESCRIPTOR.fields
        if _is_printed(message_, field)
    }


def compact_json(message_: message.Message) -> str:
    """The same as one line of text, to the byte as `moeplan --jsonl` prints it, so that digests of it agree."""
    return _text(to_dict(message_))


def number_text(number: float) -> str:
    """The shortest decimal form that reads back to the same number, as C++'s std::to_chars chooses it."""
    sign, digits, exponent = Decimal(repr(float(number))).as_tuple()
    assert isinstance(exponent, int), "finite"
    figures = "".join(map(str, digits)).rstrip("0") or "0"
    exponent += len(digits) - 1  # Of the first figure.
    power = 0 if figures == "0" else exponent
    mantissa = figures[0] + ("." + figures[1:] if len(figures) > 1 else "")
    scientific = f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if len(figures) - 1 <= power:
        fixed = f"{abs(number):.0f}"
    elif power >= 0:
        fixed = f"{figures[: power + 1]}.{figures[power + 1 :]}"
    else:
        fixed = f"0.{'0' * (-power - 1)}{figures}"
    return ("-" if sign else "") + (fixed if len(fixed) <= len(scientific) else scientific)


# ---- Reading.


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_map(field: _Field) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_repeated(field: _Field) -> bool:
    # Newer runtimes have the property and warn of labels.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == _Field.LABEL_REPEATED if repeated is None else repeated)


def _choice_of(field: _Field) -> Any:
    """The oneof that the .proto file writes; None for a plain field, and for an optional one, which has its own."""
    choice = field.containing_oneof
    return None if choice is None or choice.name == f"_{field.name}" else choice


def _found(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the string "{value if len(value) <= 120 else value[:120] + "..."}"'
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence):
        return "a list"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return number_text(float(value)) if math.isfinite(value) else str(float(value))
    return f"a Python {type(value).__name__}"


def _unknown_field(path: str, name: str, known: list[str]) -> InvalidInput:
    folded = {candidate.lower(): candidate for candidate in reversed(known)}
    near = difflib.get_close_matches(name.lower().replace("_", ""), folded, n=1, cutoff=0.75)
    hint = f" (did you mean {folded[near[0]]}?)" if near else ""
    return mismatch(_join(path, name), f"an unknown field{hint}", f"one of {', '.join(known)}")


def _check_alternatives(message_: message.Message, field: _Field, path: str) -> None:
    choice = _choice_of(field)
    taken = message_.WhichOneof(choice.name) if choice is not None else None
    if taken is None:
        return
    names = ", ".join(one.json_name for one in choice.fields)
    first = message_.DESCRIPTOR.fields_by_name[taken].json_name
    raise mismatch(path, f"both {first} and {field.json_name}", f"at most one of {names}")


def _read_field(message_: message.Message, field: _Field, value: Any, path: str) -> None:
    if _is_map(field):
        _read_map(getattr(message_, field.name), field, value, path)
    elif _is_repeated(field):
        _read_list(getattr(message_, field.name), field, value, path)
    elif field.message_type is not None:
        child = getattr(message_, field.name)
        child.SetInParent()
        _read_child(child, value, path)
    else:
        setattr(message_, field.name, _scalar(field, value, path))


def _read_list(into: Any, field: _Field, value: Any, path: str) -> None:
    if isinstance(value, (str, Mapping)) or not hasattr(value, "__iter__"):
        raise mismatch(path, _found(value), "a list")
    for i, item in enumerate(value):
        if field.message_type is not None:
            _read_child(into.add(), item, f"{path}[{i}]")
        else:
            into.append(_scalar(field, item, f"{path}[{i}]"))


def _read_map(into: Any, field: _Field, value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise mismatch(path, _found(value), "an object")
    item_field = field.message_type.fields_by_name["value"]
    for key, item in value.items():
        if item_field.message_type is not None:
            _read_child(into[key], item, _join(path, key))
        else:
            into[key] = _scalar(item_field, item, _join(path, key))


def _read_child(child: Any, value: Any, path: str) -> None:
    if child.DESCRIPTOR.full_name == _VALUE:
        _read_any(child, value, path)
    elif child.DESCRIPTOR.full_name == _STRUCT:
        _read_struct(child, value, path)
    else:
        read(child, value, path)


def _read_struct(struct: struct_pb2.Struct, value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise mismatch(path, _found(value), "an object")
    for key, item in value.items():
        _read_any(struct.fields[key], item, _join(path, str(key)))


def _read_any(any_: struct_pb2.Value, value: Any, path: str) -> None:
    if value is None:
        any_.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, bool):
        any_.bool_value = value
    elif isinstance(value, str):
        any_.string_value = _string(value, path)
    elif isinstance(value, numbers.Real):
        any_.number_value = float(value)
    elif isinstance(value, Mapping):
        any_.struct_value.SetInParent()
        _read_struct(any_.struct_value, value, path)
    elif hasattr(value, "__iter__"):
        any_.list_value.SetInParent()
        for i, item in enumerate(value):
            _read_any(any_.list_value.values.add(), item, f"{path}[{i}]")
    else:
        raise mismatch(path, _found(value), "what JSON has")


def _scalar(field: _Field, value: Any, path: str) -> Any:
    kind = field.cpp_type
    if kind == _Field.CPPTYPE_ENUM:
        return _enum_number(field, value, path)
    if kind == _Field.CPPTYPE_STRING:
        return _string(value, path)
    if kind == _Field.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            raise mismatch(path, _found(value), "true or false")
        return value
    whole = kind == _Field.CPPTYPE_INT32
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise mismatch(path, _found(value), "a whole number" if whole else "a number")
    if not math.isfinite(value):
        raise mismatch(path, _found(value), "a finite number")
    if not whole:
        return float(value)
    if value != int(value):
        raise mismatch(path, _found(value), "a whole number")
    if int(value) not in _INT32:
        raise mismatch(path, _found(value), "a whole number from -2147483648 to 2147483647")
    return int(value)


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise mismatch(path, _found(value), "a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise mismatch(path, "half a surrogate pair", "text that UTF-8 has") from None
    return value


def _enum_number(field: _Field, value: Any, path: str) -> int:
    known = field.enum_type.values_by_name
    if isinstance(value, str) and value in known:
        return int(known[value].number)
    # As to_dict gives a value that has no name here.
    if type(value) is int and value in _INT32 and value not in field.enum_type.values_by_number:
        return value
    names = ", ".join(one.name for one in field.enum_type.values if one.name != "UNSPECIFIED")
    raise mismatch(path, _found(value), f"one of {names}")


# ---- Printing.


def _is_printed(message_: message.Message, field: _Field) -> bool:
    if _is_map(field):
        return len(getattr(message_, field.name)) > 0
    if _is_repeated(field) or not field.has_presence:
        return True
    return bool(message_.HasField(field.name))


def _field_value(message_: message.Message, field: _Field) -> Any:
    value = getattr(message_, field.name)
    if _is_map(field):
        item_field = field.message_type.fields_by_name["value"]
        return {key: _item(value[key], item_field) for key in sorted(value)}
    if _is_repeated(field):
        return [_item(item, field) for item in value]
    return _item(value, field)


def _item(value: Any, field: _Field) -> Any:
    if field.message_type is not None:
        return _child(value)
    if field.enum_type is not None:
        # A newer planner's value has no name here.
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else int(value)
    return value


def _child(child: Any) -> Any:
    if child.DESCRIPTOR.full_name == _VALUE:
        return _any(child)
    if child.DESCRIPTOR.full_name == _STRUCT:
        return _struct(child)
    return to_dict(child)


def _struct(struct: Any) -> dict[str, Any]:
    return {key: _any(struct.fields[key]) for key in sorted(struct.fields)}


def _any(any_: Any) -> Any:
    kind = any_.WhichOneof("kind")
    if kind == "struct_value":
        return _struct(any_.struct_value)
    if kind == "list_value":
        return [_any(item) for item in any_.list_value.values]
    return None if kind in (None, "null_value") else getattr(any_, kind)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(key)}:{_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "null"
        return "-0.0" if value == 0 and math.copysign(1, value) < 0 else number_text(value)
    return json.dumps(value, ensure_ascii=False)
