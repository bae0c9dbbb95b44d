"""A value of one argument that has options of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from flwr_dpkmeans.sums.option_rules import Options, rule_of
from flwr_dpkmeans.sums.settings import Settings

FlatValues = dict[str, object]
"""Values of options by their flat names, which are those among all of a run."""


@dataclass(frozen=True)
class Group(Options):
    """Options of every run that belong together and are the value of one argument."""

    argument: ClassVar[str]
    """Whose value it is."""
    short: ClassVar[str | None]
    """What may be written instead where all its options have their defaults."""

    @classmethod
    def flat_names(cls) -> dict[str, str]:
        """What each of its options is called among all options of a run."""
        names = {}
        for option in fields(cls):
            name = option.name
            names[name] = option.metadata.get("flat", name)
        return names

    def flat(self) -> FlatValues:
        """The same by flat names."""
        values: FlatValues = {}
        if self.short is not None:
            values[self.argument] = self.short
        flat_names = self.flat_names()
        for name, flat_name in flat_names.items():
            values[flat_name] = getattr(self, name)
        return values


def setting(name: str) -> Any:
    """Declare an option of a group that is one of `Settings`, with its default."""
    declared = Settings.__dataclass_fields__[name]
    metadata = dict(declared.metadata)
    metadata["flat"] = name
    default = declared.default
    return field(default=default, metadata=metadata)


def parameters_of(kind: type[Options]) -> str:
    """List a class's options as a section of a docstring, each as it was declared."""
    lines = ["Parameters", "----------"]
    for option in fields(kind):
        rule = rule_of(option)
        about = option.metadata["about"] if rule is None else rule.about
        lines += [f"{option.name} : {option.type}", f"    {about}"]
    return "\n".join(lines)
