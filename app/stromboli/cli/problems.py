"""Error exit of commands: one line for each problem on standard error, exit code 2, no traceback."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import typer

from stromboli.api.errors import MistakesError, StromboliError

#: the exit code when the object does not exist
NOT_FOUND = 1
#: the exit code for wrong input
WRONG = 2
#: the exit code for internal errors
FAILED = 70


class NotFoundError(StromboliError):
    """The object of a question does not exist."""


def quit_with(problems: Iterable[str], code: int = WRONG) -> NoReturn:
    """Print the problems and end the command."""
    for line in problems:
        print(line, file=sys.stderr)
    raise typer.Exit(code)


def misset(error: Any) -> str:
    """pydantic's errors about settings, under the names of the options."""
    option = "--" + str(error["loc"][0]).replace("_names", "_name").replace("_", "-") + ": " if error["loc"] else ""
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{option}{message}, not {error['input']!r}" if option else message


def mistyped(error: Any) -> NoReturn:
    """Say in a line what of a command line was not understood; a group without a command says what it has."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        where = error.ctx.command_path if getattr(error, "ctx", None) else "stromboli"
        text = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
        print(f"{where}: {text[:1].lower()}{text[1:]} (see {where} --help)", file=sys.stderr)
    sys.exit(error.exit_code)


def reporting(command: Callable[..., None]) -> Callable[..., None]:
    """A command that prints its errors in a line.

    Its output is flushed while a reader that has gone can still be noticed. Plugins run in the same process: what they
    raise to end it does not.
    """

    @functools.wraps(command)
    def reported(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
            sys.stdout.flush()
        except typer.Exit:
            sys.stdout.flush()
            raise
        except MistakesError as error:
            quit_with(error.problems)
        except NotFoundError as error:
            quit_with([str(error)], NOT_FOUND)
        except StromboliError as error:
            quit_with([str(error)])
        except BrokenPipeError:
            raise
        except OSError as error:
            _drop_unwritten_output()
            quit_with([f"{error.filename or 'standard output'}: {error.strerror or error}"])
        except (Exception, SystemExit) as error:
            if isinstance(error.__context__, BrokenPipeError):  # rich's way to end
                raise typer.Exit(1) from None
            print(f"stromboli failed: {type(error).__name__}: {error}", file=sys.stderr)
            raise typer.Exit(FAILED) from error

    return reported


def _drop_unwritten_output() -> None:
    """Drop output that cannot be written: Python would try again as it exits, and report the error."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def open_streams() -> None:
    """Give commands streams that take every character, also where the parent process closed them."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
