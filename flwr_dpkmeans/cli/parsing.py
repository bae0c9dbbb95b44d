"""How words of a command line become options.

What is misspelt is named together with the nearest that there is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from inspect import unwrap
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import click
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from flwr_dpkmeans.errors import listed, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    OptionsT = TypeVar("OptionsT", bound=DataclassInstance)

WORDS, UNKNOWN = "flwr_dpkmeans.words", "flwr_dpkmeans.unrecognised"
"""Where a context keeps what `PassingOn` takes, and what it does not recognise."""


class _Documented(TyperCommand):
    """A command whose help shows sentences whole, and those of its arguments."""

    def __init__(self, name: str | None, **values: Any) -> None:
        text = values.get("help")
        if text:
            values["help"] = _reflowed(text)
        super().__init__(name, **values)

    def format_help(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        """Print, after putting back what click 8.5 drops of typer's arguments."""
        assert self.callback is not None
        function = unwrap(self.callback)
        hints = get_type_hints(function, include_extras=True)
        for param in self.params:
            hint = hints.get(str(param.name))
            for info in getattr(hint, "__metadata__", ()):
                is_argument = isinstance(info, ArgumentInfo)
                if is_argument and isinstance(param, TyperArgument):
                    param.help = info.help
        super().format_help(ctx, formatter)


def _reflowed(text: str) -> str:
    """Join the lines of each paragraph.

    Those of a docstring end where its source does, not where the screen does.
    """
    paragraphs = text.split("\n\n")
    joined = [" ".join(paragraph.split()) for paragraph in paragraphs]
    return "\n\n".join(joined)


class Command(_Documented):
    """A command whose options may be shortened as long as one is meant.

    An option that can be repeated takes several values at once, too.
    """

    def parse_args(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> list[str]:
        """Complete and check names before click reads the values."""
        if not ctx.resilient_parsing:  # a shell asks what may come next
            args = self._with_whole_names(ctx, args)
            args = self._with_one_value_each(args)
        return super().parse_args(ctx, args)

    def _with_whole_names(
        self,
        ctx: click.Context,
        words: Sequence[str],
    ) -> list[str]:
        """Write options out; what begins no name is refused with the nearest."""
        names = list[str]()
        for param in self.get_params(ctx):
            names += param.opts
        whole = list[str]()
        for index, word in enumerate(words):
            if word == "--":  # what follows is no option, however it looks
                whole += words[index:]
                break
            if word.startswith("--"):
                word = _with_whole_name(ctx, word, names)
            whole.append(word)
        return whole

    def _with_one_value_each(self, words: Sequence[str]) -> list[str]:
        """Repeat the name of an option that several values follow.

        Of an option that is there twice, the last one counts.
        """
        repeated = set[str]()
        for param in self.params:
            if isinstance(param, click.Option) and param.multiple:
                repeated.update(param.opts)
        pairs = list[tuple[str, str]]()
        """Each word, after the option that it belongs to."""
        option = ""
        n_values = 0
        for word in words:
            if word.startswith("-"):
                name, equals, _ = word.partition("=")
                option = name if name in repeated else ""
                n_values = 0
                if option:
                    pairs = [pair for pair in pairs if pair[0] != option]
                pairs.append((option, word))
                if equals:
                    option = ""
                continue
            if option:
                n_values += 1
            if n_values > 1:
                pairs.append((option, option))
            pairs.append((option, word))
        return [word for _, word in pairs]


def _with_whole_name(
    ctx: click.Context,
    word: str,
    names: Sequence[str],
) -> str:
    """Write out the name that a word begins."""
    name, equals, value = word.partition("=")
    if name in names:
        return word
    longer = [other for other in names if other.startswith(name)]
    if not longer:
        sentence = f"there is no option {name}: {nearest(name, names)}"
        raise click.UsageError(sentence, ctx)
    if len(longer) > 1:
        sentence = f"{name} may be {listed(longer)}: write it out"
        raise click.UsageError(sentence, ctx)
    return f"{longer[0]}{equals}{value}"


class PassingOn(_Documented):
    """A command that passes on to another program what it does not recognise."""

    def parse_args(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> list[str]:
        """Take what is recognised, and leave the others in the context."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        recognised, unrecognised = self._split(ctx, args)
        ctx.meta[WORDS] = list(args)
        ctx.meta[UNKNOWN] = unrecognised
        return super().parse_args(ctx, recognised)

    def _split(
        self,
        ctx: click.Context,
        words: Sequence[str],
    ) -> tuple[list[str], list[str]]:
        """Sort words into those of this command and those of the other program."""
        flags = set[str]()
        with_value = set[str]()
        n_arguments = 0
        for param in self.get_params(ctx):
            if not isinstance(param, click.Option):
                n_arguments += 1
            elif param.is_flag:
                flags.update(param.opts)
            else:
                with_value.update(param.opts)
        recognised = list[str]()
        unrecognised = list[str]()
        rest = iter(words)
        for word in rest:
            name = word.partition("=")[0]
            is_long = word.startswith("--")
            has_value_attached = not is_long and word[:2] in with_value
            if word in flags or name in with_value or has_value_attached:
                recognised.append(word)
                if word in with_value:
                    recognised.extend(itertools.islice(rest, 1))
            elif word.startswith("-") or n_arguments == 0:
                unrecognised.append(word)
            else:
                recognised.append(word)
                n_arguments -= 1
        return recognised, unrecognised


class Group(TyperGroup):
    """Commands of one kind."""

    def resolve_command(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; a name that is none is refused with the nearest."""
        name = args[0]
        is_misspelt = name not in self.commands and not name.startswith("-")
        if is_misspelt and not ctx.resilient_parsing:
            sentence = f"there is no command {name!r}: {nearest(name, self.commands)}"
            raise click.UsageError(sentence, ctx)
        return super().resolve_command(ctx, args)
