"""A value of one argument that has options of its own."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

from flwr_dpkmeans.sums.option_rules import Options, rule_of
from flwr_dpkmeans.sums.settings import Settings


@dataclass(frozen=True)
class Group(Options):
    """Options of every run that belong together and are the value of one argument."""

    argument: ClassVar[str]
    """Whose value it is."""
    short: ClassVar[str | None]
    """What may be written instead where all its options have their defaults."""

    def flat(self) -> dict[str, Any]:
        """The same by flat names."""
        values = {
            flat_name(option): getattr(self, option.name) for option in fields(self)
        }
        if self.short is None:
            return values
        return {self.argument: self.short, **values}


def flat_name(option: Field[Any]) -> str:
    """The name of an object's option among all options of a run."""
    name: str = option.metadata.get("flat", option.name)
    return name


def setting(name: str) -> Any:
    """Declare an option of a group that is one of `Settings`, with its default."""
    setting = Settings.__dataclass_fields__[name]
    metadata = {**setting.metadata, "flat": name}
    return field(default=setting.default, metadata=metadata)


def parameters_of(kind: type[Options]) -> str:
    """List a class's options as a section of a docstring, each as it was declared."""
    lines = ["Parameters", "----------"]
    for option in fields(kind):
        rule = rule_of(option)
        about = option.metadata["about"] if rule is None else rule.about
        lines.append(f"{option.name} : {option.type}")
        lines.append(f"    {about}")
    return "\n".join(lines)
