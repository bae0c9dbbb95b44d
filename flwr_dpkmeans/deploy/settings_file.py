"""What an operator writes down in a file."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)

from flwr_dpkmeans.errors import ConfigurationError, finding
from flwr_dpkmeans.node.policy import read_toml


def located(path: str | Path, folder: Path) -> Path:
    """An absolute path that begins in a folder.

    Links stay as they are: an operator may move what they lead to.
    """
    absolute = (folder / path).absolute()
    return Path(os.path.normpath(absolute))


def _located(path: Path, info: ValidationInfo) -> Path:
    """A service's working directory is not what its operator thinks.

    Paths begin in the file's own folder.
    """
    return located(path, Path(info.context or ""))


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""Of a whole app (FAB)."""
LocalPath = Annotated[Path, Field(strict=False), AfterValidator(_located)]


class SettingsFile(BaseModel):
    """What an operator's file says.

    Keys are spelt with hyphens there, and paths begin in its folder.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        alias_generator=lambda name: name.replace("_", "-"),
        use_attribute_docstrings=True,
    )

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read the file.

        A ConfigurationError says what cannot be read, is missing, unknown or wrong.
        """
        return cls.of(read_toml(path, str(path)), path)

    @classmethod
    def of(
        cls,
        values: Mapping[str, object],
        path: Path,
    ) -> Self:
        """Take what the file says, or is about to say."""
        try:
            return cls.model_validate(values, context=path.absolute().parent)
        except ValidationError as error:
            raise ConfigurationError(
                f"{path}: {finding(error, cls.model_fields)}"
            ) from error

    @classmethod
    def to_toml(cls, values: Mapping[str, object]) -> str:
        """The file's text: each key (as a field) with what it is for.

        And behind a # those that have no value.
        """
        lines = list[str]()
        for name, field in cls.model_fields.items():
            default = (
                ()
                if field.is_required()
                else ""
                if field.default is None
                else field.default
            )
            stated = f"{field.alias} = {_as_toml(values.get(name, default))}"
            about = textwrap.wrap((field.description or "").replace("``", "'"), 110)
            lines += [
                "",
                *(f"# {line}" for line in about),
                stated if name in values else f"# {stated}",
            ]
        return "\n".join(lines[1:]) + "\n"


def _as_toml(value: object) -> str:
    """A value as a TOML file has it; a mapping is an inline table."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key} = {_as_toml(part)}" for key, part in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return json.dumps(value, ensure_ascii=False, default=str)
