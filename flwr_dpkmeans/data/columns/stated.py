"""What a file or a caller states, checked: `Stated`."""

from __future__ import annotations

from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
)

from flwr_dpkmeans.errors import ConfigurationError, finding


class Stated(BaseModel):
    """What a file or a caller states.

    What is wrong with it is a ConfigurationError of one sentence.
    """

    # Validators are built at the first use: they take a tenth of a second, and a fit
    # without a schema needs none.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def __init__(self, **stated: object) -> None:
        try:
            super().__init__(**stated)
        except ValidationError as error:
            what = ""
            if "name" in stated:
                what = f"the schema's column {stated['name']!r}: "
            why = finding(error, type(self).model_fields)
            raise ConfigurationError(what + why) from None

    def __getstate__(self) -> dict[str, object]:
        """Return what is stated, and nothing that follows from it, for any format."""
        state = super().__getstate__()
        attributes = state["__dict__"]
        names = type(self).model_fields
        values = {name: attributes[name] for name in attributes if name in names}
        return state | {"__dict__": values}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what was stored, checked as when it was stated.

        Some formats, such as skops, give the member of an enumeration back as its text.
        """
        names = state["__pydantic_fields_set__"]
        stated = {name: state["__dict__"][name] for name in names}
        super().__setstate__(type(self)(**stated).__getstate__())
