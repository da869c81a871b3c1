"""The `arena` command: names every command, loads one when it is asked for, turns failures into text and exit codes.

`arena --help` loads no command (it has to answer at once on any host), an ArenaError is shown as its coded
text, and exit codes are 0 ok, 1 the thing tested failed, 2 usage, 3 environment not ready, 4 integrity violation.
Commands are in the files beside this one.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

from foundation.errors import ArenaError, nearest, printable, redacted
from neurons.cli.presenter import EXIT_INTERRUPTED, EXIT_NOT_READY, echo_json, exit_code, refusal


class CommandEntry(NamedTuple):
    """Where a command lives. The first sentence of its own help is `about`; a test compares the two."""

    name: str
    module: str  # below neurons.cli, with the application in it where that is not `app`
    panel: str
    about: str


_START, _MINER, _VALIDATOR, _DATA, _TRAINING = "Start here", "Miner", "Validator", "Data", "Training"
_OPERATOR = "Operator"
COMMANDS = (
    CommandEntry("demo", "demo", _START, "Run the whole arena once on this machine."),
    CommandEntry("doctor", "validator:doctor_app", _START, "Check this host; print the fix for what is missing."),
    CommandEntry("explain", "explain", _START, "Explain a code, rule, finding, setting, metric or policy."),
    CommandEntry("init", "agent", _MINER, "Begin an agent: a file that works, its test, one problem."),
    CommandEntry("check", "agent", _MINER, "Gate an agent file with the validator's own code."),
    CommandEntry("run", "agent", _MINER, "Run an agent file on problems, as a validator would."),
    CommandEntry("view", "view", _MINER, "Look at traces: what happened, what was asked, what failed."),
    CommandEntry("submit", "submission", _MINER, "Sign an agent file and submit it."),
    CommandEntry("commit", "submission", _MINER, "Commit to an agent file on chain; hand nothing in."),
    CommandEntry("status", "submission", _MINER, "Show where submissions stand."),
    CommandEntry("leaderboard", "race:leaderboard_app", _MINER, "Show the standings of the latest settled race."),
    CommandEntry("withdraw", "submission", _MINER, "Take a submitted version back that waits for the gate."),
    CommandEntry("winner", "submission", _MINER, "Fetch the file of the agent at the top, once it is public."),
    CommandEntry("validator", "validator", _VALIDATOR, "Run a validator."),
    CommandEntry("race", "race", _VALIDATOR, "Look at races."),
    CommandEntry("judge", "judge", _VALIDATOR, "Measure the judge."),
    CommandEntry("records", "records", _DATA, "Read, verify and export the signed log."),
    CommandEntry("corpus", "corpus", _TRAINING, "Filter exports into a training corpus, see what was dropped."),
    CommandEntry("train", "train", _TRAINING, "Train one stage of a model from a recipe."),
    CommandEntry("eval", "evaluate", _TRAINING, "Evaluate a model, or an agent file, on a frozen set of problems."),
    CommandEntry("report", "evaluate:report_app", _TRAINING, "Lay evaluations beside the paper's Table 1."),
    CommandEntry("lineage", "train", _TRAINING, "Show where a checkpoint comes from."),
    CommandEntry("reenter", "train", _TRAINING, "Make a checkpoint race again."),
    CommandEntry("problems", "problems", _OPERATOR, "List, check, score, make, sort and seal problems."),
    CommandEntry("catalogue", "catalogue", _OPERATOR, "Make, build and serve product catalogues."),
    CommandEntry("operator", "operator", _OPERATOR, "Hand out what all validators share, signed."),
    CommandEntry("submissions", "operator:submissions_app", _OPERATOR, "See what the gate holds, and decide it."),
    CommandEntry("store", "store", _OPERATOR, "Back up, restore and prepare the database."),
)
JSON_FLAG = "--json"
_COMPLETION = ("install_completion", "show_completion")


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import the module of command `name` and return the command. StopIteration when it is not in the table."""
    module, _, application = next(entry.module for entry in COMMANDS if entry.name == name).partition(":")
    command = typer.main.get_command(getattr(importlib.import_module(f"neurons.cli.{module}"), application or "app"))
    if isinstance(command, TyperGroup) and name in command.commands:  # one file may hold several single commands
        command = command.commands[name]
    assert isinstance(command, TyperCommand | TyperGroup)
    command.name = name
    return _tidied(command, f"arena {name}")


def _tidied(command: TyperCommand | TyperGroup, line: str) -> TyperCommand | TyperGroup:
    """The command with its examples first in its help (where it has none, its line with what it needs), whole
    paragraphs, what may be repeated said, and no options of the shell's completion (`arena` has them)."""
    text = command.help or ""
    if not re.search(r"^\s*arena ", text, re.MULTILINE) and not isinstance(command, TyperGroup):
        needed = [param for param in command.params if param.required]
        named = [param.metavar or (param.name or "").upper() for param in needed]
        flags = ["" if isinstance(param, TyperArgument) else f"{param.opts[0]} " for param in needed]
        text += "\n\n" + " ".join([line, *(flag + name for flag, name in zip(flags, named, strict=True))])
    command.help = examples_first(text)
    command.params = [param for param in command.params if param.name not in _COMPLETION]
    for param in command.params:
        if isinstance(param, TyperOption) and param.multiple:
            param.help = f"{param.help or ''} Repeatable.".lstrip()
    for inner in command.commands.values() if isinstance(command, TyperGroup) else ():
        if isinstance(inner, TyperCommand | TyperGroup):
            _tidied(inner, f"{line} {inner.name}")
    return command


def examples_first(text: str) -> str:
    """A help text whose examples (paragraphs, or lines of one, that begin with `arena `) follow its first sentence, the
    rest after them; a paragraph is one line, for the terminal to break."""
    broken = re.sub(r"\n\s*(?=arena )", "\n\n", text)
    first, *others = [" ".join(part.split()) for part in broken.split("\n\n") if part.strip()] or [""]
    examples = [part for part in others if part.startswith("arena ")]
    rest = [part for part in others if not part.startswith("arena ")]
    return "\n\n".join([first, *(["\n".join(f"$ {part}" for part in examples)] if examples else []), *rest])


class ArenaGroup(TyperGroup):
    """The top level: knows every command by name and sentence, and imports one when it is invoked."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for entry in COMMANDS:
            self.commands[entry.name] = TyperCommand(entry.name, help=entry.about, rich_help_panel=entry.panel)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ctrl-C is said, at whatever moment it comes."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        """The real command behind the sentence. A usage error names the nearest command."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else None, rest


app = typer.Typer(cls=ArenaGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"agent-arena {version('agent-arena')}")
        raise typer.Exit()


@app.callback()
def arena(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """An agent arena on ShoppingBench: gate, race, judge, sign, pay, and export what happened.

    $ arena demo

    Then README.md's five lines for who you are. `arena COMMAND --help` begins with examples.

    Exit codes: 0 ok, 1 the thing tested failed, 2 usage, 3 environment not ready, 4 integrity violation.
    """


_REPORT = "Please report the traceback."


def run_guarded(program: Callable[[], int | None], *, is_json: bool = False) -> int:
    """Run a program and return its exit code; a failure becomes text on stderr, and with `is_json` JSON on stdout.
    Every entry point ends here."""
    try:
        try:
            return program() or 0
        except OSError as error:  # a path that can't be used was named by somebody
            if error.filename is None:
                raise
            raise ArenaError("V2027", f"{error.filename}: {error.strerror}") from error
    except ArenaError as error:
        if is_json:
            echo_json(refusal(error.failure, fix=error.fix))
        typer.echo(str(error), err=True)
        return exit_code(error)
    except (KeyboardInterrupt, typer.Abort):
        if is_json:
            echo_json(refusal(None, "stopped", code="stopped"))
        typer.echo("stopped", err=True)
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: nothing is swallowed, it is shown whole
        if is_json:
            echo_json(refusal(None, printable(redacted(f"{type(error).__name__}: {error}")), _REPORT, "bug"))
        typer.echo(printable(redacted(traceback.format_exc())), err=True)
        typer.echo(f"This is a bug in agent-arena, not in your agent or host. {_REPORT}", err=True)
        return EXIT_NOT_READY


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `arena`. Always ends with SystemExit, whose code is the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else NumPy's import starts threads: 50 ms
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # else all that is installed is searched for some: 10 ms
    look = {}
    if os.environ.get("NO_COLOR"):
        look = {"color": False}
        os.environ["TERM"] = "dumb"  # else rich, which draws help and tables, still sends bold
    sys.exit(run_guarded(lambda: _answer(words, look), is_json=JSON_FLAG in words))


def _answer(words: list[str], look: dict[str, bool]) -> int | None:
    """Run the command of a line. With `--json` a line that is malformed is answered in JSON, too."""
    try:
        code: int | None = app(args=words, prog_name="arena", standalone_mode=False, **look)
    except TyperException as error:
        _name_nearest(error)
        if JSON_FLAG in words:
            echo_json(refusal(None, error.format_message()))
            typer.echo(f"error: {error.format_message()}", err=True)
        else:
            from typer.rich_utils import rich_format_error

            rich_format_error(error)  # type: ignore[arg-type]  # every one that typer raises
        return error.exit_code
    return code


def _name_nearest(error: Any) -> None:
    """Let the error of a mistyped option or command suggest what is near: typer suggests what shares some letters."""
    if options := getattr(error, "possibilities", None):
        error.possibilities = nearest(error.option_name, options)
    elif found := re.match(r"No such command '(.+?)'\.", error.message):
        meant = "".join(f" Did you mean {name!r}?" for name in nearest(found[1], error.ctx.command.commands))
        error.message = f"{found[0]}{meant}"


if __name__ == "__main__":
    main()
