"""The DEDUP_* environment, read once; every fault is named in one error."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import click

from dedup.auth import Kind
from dedup.delivery import ManualRuns, ScopePart
from dedup.record import LONGEST_LEASE_SECONDS
from dedup.stores import open_store

T = TypeVar("T")

_SERVERLESS = ("K_SERVICE", "CLOUD_RUN_JOB", "GAE_ENV")
"""Set by Cloud Run and Cloud Functions, in a Cloud Run job, and by App Engine."""


class SettingsError(click.ClickException, ValueError):
    """The environment can't be used. `faults` has a sentence for each variable that is wrong.

    functions-framework's command is click's, which shows such an exception's message and no traceback.
    """

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n  ".join(["the environment is wrong:", *faults]))
        self.faults = faults


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this function deduplicates. docs/settings.md says what each variable does, DEDUP_<FIELD> in capitals."""

    store: str = "firestore"
    lease_seconds: int = 300
    renew: bool = True
    timeout_seconds: int = 3600
    retention_seconds: int = 86400
    scope: tuple[ScopePart, ...] = ()
    manual_runs: ManualRuns = ManualRuns.SHARE
    auth: Kind = Kind.IAM
    audience: str = ""
    callers: tuple[str, ...] = ()
    log_level: str = "INFO"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Reads and checks the variables; opens nothing.

        Raises:
            SettingsError: one or more of them are wrong.
        """
        read = _Reader(environ)
        platform_timeout = read("CLOUD_RUN_TIMEOUT_SECONDS", _seconds, cls.timeout_seconds)
        settings = cls(
            store=read("DEDUP_STORE", _store, cls.store),
            lease_seconds=read("DEDUP_LEASE_SECONDS", _seconds, cls.lease_seconds),
            renew=read("DEDUP_RENEW", _switch, cls.renew),
            timeout_seconds=read("DEDUP_TIMEOUT_SECONDS", _seconds, platform_timeout),
            retention_seconds=read("DEDUP_RETENTION_SECONDS", _seconds, cls.retention_seconds),
            scope=read("DEDUP_SCOPE", _scope, cls.scope),
            manual_runs=read("DEDUP_MANUAL_RUNS", _manual_runs, cls.manual_runs),
            auth=read("DEDUP_AUTH", _auth, cls.auth),
            audience=read("DEDUP_AUDIENCE", str, cls.audience),
            callers=read("DEDUP_CALLERS", _callers, cls.callers),
            log_level=read("DEDUP_LOG_LEVEL", _log_level, cls.log_level),
        )
        if settings.retention_seconds < settings.lease_seconds:
            read.faults.append(
                f"DEDUP_RETENTION_SECONDS={settings.retention_seconds} is shorter than a lease of {settings.lease_seconds} s: "
                "a record must outlive the retries that it answers, a day is usual"
            )
        where = next((name for name in _SERVERLESS if environ.get(name)), None)
        if settings.store.startswith("sqlite:") and where is not None:
            read.faults.append(
                f"DEDUP_STORE={settings.store} is for one machine, and {where} says that this is one instance of several: "
                "each would keep runs of its own. Use firestore"
            )
        read.faults += _auth_faults(settings, environ)
        read.refuse_unknown()
        if read.faults:
            raise SettingsError(read.faults)
        return settings


class _Reader:
    """Reads variables and collects what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._known: list[str] = []
        self.faults: list[str] = []

    def __call__(self, name: str, parse: Callable[[str], T], default: T) -> T:
        self._known.append(name)
        text = self._environ.get(name, "").strip()
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as fault:
            self.faults.append(f"{name}: {fault}")
            return default

    def refuse_unknown(self) -> None:
        """A misspelt variable would be passed over without a word, and its default would rule."""
        for name in sorted(self._environ):
            if name.startswith("DEDUP_") and name not in self._known:
                close = difflib.get_close_matches(name, self._known, n=1)
                meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(self._known)}"
                self.faults.append(f"{name} is no setting: {meant}")


def _seconds(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= LONGEST_LEASE_SECONDS:
        raise ValueError(f"{text!r} is not a number of whole seconds from 1 to {LONGEST_LEASE_SECONDS}, such as 300")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _store(text: str) -> str:
    open_store(text)  # it connects to nothing; a URL that can't be read is told here, together with all other faults
    return text


def _scope(text: str) -> tuple[ScopePart, ...]:
    return tuple(ScopePart.parse(part) for part in text.split(","))


def _manual_runs(text: str) -> ManualRuns:
    try:
        return ManualRuns(text)
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join(ManualRuns)}") from None


def _auth(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join(Kind)}") from None


def _callers(text: str) -> tuple[str, ...]:
    callers = tuple(caller.strip() for caller in text.split(","))
    for caller in callers:
        if not re.fullmatch(r"[^@\s]+@[^@\s]+", caller):
            raise ValueError(f"{caller!r} is no e-mail address: write those of the service accounts that may call, by commas")
    return callers


def _auth_faults(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """What would let anybody in, or is said in vain."""
    chosen = f"DEDUP_AUTH={settings.auth}"
    if settings.auth is Kind.OIDC and not settings.audience:
        yield f"{chosen} needs DEDUP_AUDIENCE, what tokens must be made for: the URL that the job is set to"
    if settings.auth is Kind.OIDC and not settings.callers:
        yield f"{chosen} needs DEDUP_CALLERS, the e-mail address of the job's account: Google signs tokens for everybody"
    if settings.auth is not Kind.OIDC and settings.audience:
        yield f"DEDUP_AUDIENCE says nothing with {chosen}: it is for oidc"
    if settings.auth is Kind.APP_ENGINE and settings.callers:
        yield f"DEDUP_CALLERS says nothing with {chosen}: X-Appengine-Cron has no name"
    if settings.auth is Kind.APP_ENGINE and environ.get("K_SERVICE"):
        yield f"{chosen} proves nothing where K_SERVICE is set: only App Engine takes X-Appengine-Cron off others' requests"
    if settings.auth is Kind.IAM and environ.get("GAE_ENV"):
        yield f"{chosen} proves nothing where GAE_ENV is set: App Engine checks no caller. Use app-engine, or oidc"


def _log_level(text: str) -> str:
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    if text.upper() not in levels:
        raise ValueError(f"{text!r} is not one of {', '.join(levels)}")
    return text.upper()
