"""Makes what a store needs."""

from __future__ import annotations

import click

from dedup.cli.output import read_settings, store_options, write_json
from dedup.stores import create_schema


@click.group()
def store() -> None:
    """What a store needs before its first run."""


@store.command()
@store_options
def create(store: str | None, as_json: bool) -> None:
    """Makes the table that the store needs, where it isn't there; says what is left to do."""
    made = create_schema(read_settings(store).store)
    if as_json:
        write_json({"done": made})
    else:
        click.echo(made)
