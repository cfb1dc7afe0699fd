"""TF_CONFIG as a raw document: its JSON, its schema and its addresses.

The meaning of a valid document is in `tfdistr.rendezvous.config`. For any other document, the functions
here raise a `ClusterConfigError` that names the field, its value, and the fix.
"""

from __future__ import annotations

import ipaddress
import json
import numbers
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from tfdistr.errors import ClusterConfigError
from tfdistr.schemas import field_name, refusal, show, validator
from tfdistr.utils.describe import ValueOfR

if TYPE_CHECKING:
    from jsonschema import ValidationError

_MAX_DEPTH = 64
_TITLE = "TF_CONFIG"


def load_json(text: object) -> Any:
    """Read JSON strictly: no member may appear twice, and NaN and Infinity are errors."""
    if not isinstance(text, str):
        raise ClusterConfigError(
            "TF_CONFIG must be JSON text, or a mapping.",
            received=f"{show(text)} ({type(text).__name__})",
            fix="Pass a string; decode bytes first.",
        )
    try:
        return json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
    except ClusterConfigError:
        raise
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # JSONDecodeError, and numbers with more digits than Python reads
        raise ClusterConfigError(
            f"TF_CONFIG must be valid JSON: {error}.",
            received=show(text),
            fix="Build it with tf_config(...).to_json(). In a shell, put it in single quotes: "
            "export TF_CONFIG='...'.",
        ) from None


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise ClusterConfigError(
                "TF_CONFIG must name each member of an object once.",
                received=f"{show(name)} twice",
                fix=f"Join the two values of {show(name)}, or remove one.",
            )
        members[name] = value
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ClusterConfigError(
        "TF_CONFIG must be JSON, which has no NaN or Infinity.",
        received=name,
        fix="Write a number, or leave the member out.",
    )


def _too_deep() -> ClusterConfigError:
    return ClusterConfigError(
        f"TF_CONFIG must not be nested more than {_MAX_DEPTH} levels deep.",
        fix="Take out the nested members: a cluster needs three levels.",
    )


def plain(value: object, path: tuple[str | int, ...] = ()) -> Any:
    """Copy a value to the types of JSON, because other types could fail when they are checked or written."""
    if len(path) > _MAX_DEPTH:
        raise _too_deep()
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ClusterConfigError(
                    f"The members of `{field_name(path, _TITLE)}` must have strings as names.",
                    received=show(name),
                    fix="Write the name as text, or give a list instead.",
                )
        return {name: plain(item, (*path, name)) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, (*path, position)) for position, item in enumerate(value)]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, numbers.Integral):  # also integers of NumPy
        value = int(value)
    if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
        return value
    raise ClusterConfigError(
        f"`{field_name(path, _TITLE)}` must be text, a finite number, true, false, null, a list or an "
        "object.",
        received=show(value) if isinstance(value, ValueOfR) else f"{show(value)} ({type(value).__name__})",
        fix="Convert it first, for example a set or an array to a list.",
    )


def check_schema(document: object) -> None:
    """Check a document (as from `plain`) against schemas/tf_config.schema.json."""
    found = next(validator("tf_config").iter_errors(document), None)
    if found is not None:
        raise _explain(found)


def _explain(found: ValidationError) -> ClusterConfigError:
    """Return the error; for some mistakes it says more than the schema."""
    path = tuple(found.absolute_path)
    schema: Any = found.schema
    instance: Any = found.instance
    if found.validator == "enum" and path == ("cluster",):
        chief = ': TensorFlow 2 calls it "chief"' if instance == "master" else ""
        return ClusterConfigError(
            "The jobs of `cluster` must be among " + ", ".join(f'"{job}"' for job in schema["enum"]) + ".",
            received=show(instance),
            fix=f"Rename the job, or remove it{chief}.",
        )
    if found.validator == "pattern" and path[0] == "cluster":
        split_address(instance, field_name(path, _TITLE))  # its error names the wrong part of the address
    error = refusal(found, _TITLE, ClusterConfigError, with_document=False)
    if isinstance(instance, dict) and len(path) == 2 and path[0] == "cluster":
        error = ClusterConfigError(
            error.message, received=error.received, fix=f"{error.fix} In R, unname() the list."
        )
    return error


def join_address(host: str, port: int) -> str:
    """Join a host and a port as "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str, field: str = "address") -> tuple[str, int]:
    """Split "host:port" into the host (an IPv6 address without its brackets) and the port.

    Example:
        >>> split_address("[::1]:2222")
        ('::1', 2222)
    """

    def refuse(rule: str, fix: str) -> NoReturn:
        raise ClusterConfigError(f"`{field}` must {rule}.", received=show(address), fix=fix)

    if not isinstance(address, str):
        refuse('be an address "host:port"', 'Write it as text, like "10.0.0.1:2222".')
    if any(character.isspace() for character in address):
        refuse("not contain white space", "Remove spaces and line ends; one string holds one address.")
    if "/" in address:
        refuse('be "host:port", without a scheme or a path', 'Write it like "10.0.0.1:2222".')
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not (bracket and _is_ipv6(host) and rest[:1] in ("", ":")):
            refuse("have a valid IPv6 address in brackets, then a port", 'Write it like "[fe80::1]:2222".')
        port = rest[1:]
    elif address.count(":") > 1:
        refuse("have one colon, or its IPv6 address in brackets", f'Write it like "{_bracketed(address)}".')
    else:
        host, _, port = address.partition(":")
    if not host:
        refuse("have a host before the port", 'Write it like "10.0.0.1:2222".')
    if not _is_ipv6(host) and not _is_host(host):
        refuse(
            'have a host of letters, digits, "-", "_" and ".", or a valid IP address',
            'Write it like "node-1:2222" or "10.0.0.1:2222".',
        )
    if len(host) > 253 or max(map(len, host.split("."))) > 63:
        refuse(
            "have a host of at most 253 characters, and at most 63 between two dots",
            "Correct the name: no other can be looked up.",
        )
    known = f"[{host}]" if ":" in host else host
    if not port:
        refuse("have a port", f'Add the port that this task listens on, like "{known}:2222".')
    if not re.fullmatch("[1-9][0-9]{0,4}", port) or int(port) > 65535:
        refuse(
            "have a port from 1 to 65535",
            f'Choose a free port that all tasks know beforehand, like "{known}:2222".',
        )
    return host, int(port)


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _is_host(host: str) -> bool:
    if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            return False
    return re.fullmatch("[A-Za-z0-9_.-]+", host) is not None


def _bracketed(address: str) -> str:
    """Guess the correct form of an IPv6 address without brackets."""
    host, _, port = address.rpartition(":")
    if _is_ipv6(host) and re.fullmatch("[0-9]+", port):
        return f"[{host}]:{port}"
    return f"[{address}]:2222" if _is_ipv6(address) else "[fe80::1]:2222"


def endpoint(address: str, field: str) -> tuple[str, int]:
    """Split an address, and return one form for all its spellings.

    All loopback names have the same form: TensorFlow's server listens on every interface of its machine.
    """
    host, port = split_address(address, field)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host.lower(), port
    return "localhost" if ip.is_loopback else str(ip), port
