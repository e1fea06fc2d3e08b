"""The group of verbs: each is imported when it is asked for, and all end in the same ways."""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Mapping, MutableMapping
from difflib import get_close_matches
from importlib import import_module
from inspect import cleandoc
from typing import Any

import click

from unspur.cli.console import colour_wanted
from unspur.cli.errors import errors_in_words, open_closed_streams

#: Where a context keeps whether tracebacks are wanted; contexts of verbs share it with the program's.
DEBUG = "unspur.debug"

#: The start of a paragraph whose lines must stay as they are: one that ends in a colon, with indented ones below it.
VERBATIM = re.compile(r"(?m)(?<=\n\n)(?=[^\n]+:\n {2})")


def _remember_debug(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: ARG001
    ctx.meta[DEBUG] = given or ctx.meta.get(DEBUG, False)


def debug_option() -> click.Option:
    """``--debug``, which people type before the verb or after it."""
    return click.Option(
        ["--debug"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_remember_debug,
        help="Show the traceback of an error.",
    )


class Program(click.Group):
    """Verbs in sections, by name; a verb is the command of that name in the module of that name, imported if needed."""

    def __init__(
        self,
        *arguments: Any,
        sections: Mapping[str, Mapping[str, str]],
        home: str,
        moved: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.sections, self.home, self.moved = sections, home, moved or {}
        self.params.append(debug_option())

    @property
    def summaries(self) -> dict[str, str]:
        """One line for each verb."""
        return {name: line for verbs in self.sections.values() for name, line in verbs.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of the help."""
        return [*self.summaries, *(name for name in super().list_commands(ctx) if name not in self.summaries)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A verb; None if there is none of that name."""
        known = super().get_command(ctx, cmd_name)
        if known is not None or cmd_name not in self.summaries:
            return known
        values = vars(import_module(f"{self.home}.{cmd_name}")).values()
        verb = next(value for value in values if isinstance(value, click.Command) and value.name == cmd_name)
        verb.short_help = self.summaries[cmd_name]
        verb.help = VERBATIM.sub("\b\n", cleandoc(verb.help or ""))
        verb.params.append(debug_option())
        self.add_command(verb)
        return verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options before the verb; nothing at all gets the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Sections of verbs; nothing is imported for that."""
        wide = max(map(len, self.summaries))
        for title, verbs in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), line) for name, line in verbs.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The lines below the verbs, as they stand."""
        if self.epilog:
            formatter.write_paragraph()
            for line in self.epilog.splitlines():
                formatter.write(f"{line}\n")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that was typed; one that is not known is an error that names the nearest."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and name not in self.list_commands(ctx):
            if name in self.moved:
                from unspur._extras import REPRODUCTION

                ctx.fail(f"{name!r} went to the reproduction: {self.moved[name]} {name}. Install it: {REPRODUCTION}.")
            near = get_close_matches(name.lower(), self.list_commands(ctx), n=1)
            ctx.fail(f"There is no verb {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Verbs, without importing them, and options."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=line) for name, line in self.summaries.items() if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of a run."""
        open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal without box characters still gets its result
        extra.setdefault("color", colour_wanted())
        with errors_in_words():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb."""
        meta: MutableMapping[str, Any] = ctx.meta
        with errors_in_words(lambda: bool(meta.get(DEBUG))), warnings.catch_warnings():
            # Pillow's word on large pictures; `open_image` bounds what they take, and says so where it refuses one.
            warnings.filterwarnings("ignore", r"Image size \(\d+ pixels\) exceeds limit")
            return super().invoke(ctx)
