"""The command line: looks at the runs of a store, and steers them.

Exit codes, the same in every command:

    0    done
    1    the answer is no: no such run, a missed one (with --fail), a simulated one that wasn't done, a fault that `check` found
    2    what was typed can't be read
    3    the environment is wrong, or the store can't be reached
    4    refused, and nothing was changed: the run is held, has changed since it was shown, or nobody said yes
    70   a fault of this program
    130  interrupted
    141  whoever read the output has closed it
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from dedup import __version__
from dedup.cli import check, create, missed, runs, simulate, steer, timeline
from dedup.cli.output import BROKEN, CLOSED_PIPE, INTERRUPTED, UNREACHABLE, store_options
from dedup.settings import SettingsError
from dedup.stores import StoreUnavailable


class _Group(click.Group):
    """Ends every command with a message and an exit code, whatever happens: a traceback helps nobody at a terminal."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tells of it once more as it exits
            ctx.exit(CLOSED_PIPE)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except (SettingsError, StoreUnavailable) as fault:
            click.echo(f"Error: {fault}", err=True)
            ctx.exit(UNREACHABLE)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as fault:
            where = traceback.extract_tb(fault.__traceback__)[-1]
            told = f"{type(fault).__name__}: {fault} ({where.filename}, line {where.lineno})"
            click.echo(f"Error: this is a fault of the program, please report it: {told}", err=True)
            ctx.exit(BROKEN)
        return done


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Keeps from the terminal what the store would log for a function's operator: the commands tell it by themselves."""
    log = logging.getLogger("dedup")
    before = log.handlers, log.propagate
    log.handlers, log.propagate = [logging.NullHandler()], False
    try:
        yield
    finally:
        log.handlers, log.propagate = before


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="%(version)s", help="Print the template's version.")
@store_options
@click.pass_context
def cli(ctx: click.Context, /, **_given: object) -> None:
    """Shows what ran, what didn't, and what to do about it.

    The store is the one that DEDUP_STORE names, or --store. --store and --json may stand before the command or after it, and
    what stands after it counts. Times are RFC 3339, such as 2026-10-16T12:00:00Z, or an age, such
    as 24h. Exit codes: 0 done; 1 the answer is no; 2 can't be read; 3 store out of reach, or wrong environment; 4 refused,
    nothing changed; 70 a fault of the program; 130 interrupted; 141 output closed.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    ctx.with_resource(_quiet_log())


for command in (
    runs.runs,
    runs.show,
    runs.key,
    steer.release,
    steer.rerun,
    missed.missed,
    timeline.timeline,
    simulate.simulate,
    check.check,
    create.store,
):
    cli.add_command(command)
