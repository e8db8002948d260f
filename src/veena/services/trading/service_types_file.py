"""Service types from a file, so that a new one needs no code (DIS-17, TRD-01).

    [type.CFD]
    base = "Application"
    properties.cells = { types = ["int"], mandatory = true }
    properties.solver = { types = ["text"] }

Types stand in the order of the file, behind the standard ones; a base comes before what is built on it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec

from veena.errors import ConfigError, InvalidEvent
from veena.services.trading.service_types import EVENT_CHANNEL, MAX_TYPES, Mode, PropertyType, ServiceType, ServiceTypes

#: A few hundred types with their properties; more is not a file of types.
MAX_FILE_BYTES = 1 << 20
#: As many properties as an advertisement can have.
MAX_PROPERTIES = 64


class _Property(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    types: Annotated[tuple[str, ...], msgspec.Meta(max_length=8)] = ()
    mandatory: bool = False
    description: str = ""


class _Type(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    base: str = ""
    interface: str = EVENT_CHANNEL
    description: str = ""
    properties: Annotated[dict[str, _Property], msgspec.Meta(max_length=MAX_PROPERTIES)] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Annotated[dict[str, _Type], msgspec.Meta(max_length=MAX_TYPES)] = {}


def load_service_types(path: Path | str) -> ServiceTypes:
    """The standard types and those of a file; raise ConfigError naming file, field, value and remedy."""
    file = Path(path)
    try:
        data = file.read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(str(file), "", f"has {len(data)} bytes", f"use at most {MAX_FILE_BYTES}")
        found = msgspec.convert(tomllib.loads(data.decode()), _File)
    except OSError as error:
        raise ConfigError(str(file), "", error.strerror or str(error), "name a TOML file of service types") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(str(file), "", str(error), "write tables such as [type.CFD]") from None
    types = ServiceTypes.standard()
    for name, kind in found.type.items():
        properties = tuple(
            PropertyType(each, told.types, Mode.MANDATORY if told.mandatory else Mode.OPTIONAL)
            for each, told in kind.properties.items()
        )
        try:
            types.add(ServiceType(name, properties, kind.base, kind.interface))
        except InvalidEvent as error:
            raise ConfigError(str(file), f"type.{name}", str(error), "change it there") from None
    return types
