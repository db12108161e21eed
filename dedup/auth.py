"""Who may call. The X-CloudScheduler-* headers never say so: any caller can set them.

`iam` leaves the check to the platform in front, `oidc` makes it here, `app-engine` trusts a header that App Engine takes off
every request from outside.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from flask import Request

CERTIFICATES_URL = "https://www.googleapis.com/oauth2/v1/certs"
"""Google's public keys, as X.509 certificates by key id."""
ISSUERS = ("https://accounts.google.com", "accounts.google.com")

FETCH_SECONDS = 8.0
"""A caller who can't be verified is told so within 10 s; the rest is for the answer."""
UNKNOWN_KEY_SECONDS = 60.0
"""How often certificates are fetched for keys that aren't among them: tokens with invented keys cost no more than that."""
KEPT_SECONDS = 3600.0
"""How long certificates are kept that don't say so themselves."""
CLOCK_SKEW_SECONDS = 10

_FROM_THE_PLATFORM = "X-Serverless-Authorization"
"""Where Cloud Run looks first: a request that has it may say anything in Authorization."""


class Kind(StrEnum):
    """By what means callers are told apart."""

    IAM = "iam"
    OIDC = "oidc"
    APP_ENGINE = "app-engine"


class Unauthenticated(Exception):
    """Nobody can tell from the request who calls."""


class Forbidden(Exception):
    """It is known who calls, and that they may not."""


class Unverifiable(Exception):
    """Whether the caller may call can't be found out just now."""


class Auth(Protocol):
    """One of these means."""

    def check(self, request: Request) -> None:
        """Returns if the caller may call.

        Raises:
            Unauthenticated: there is no telling who it is.
            Forbidden: it is somebody else.
            Unverifiable: it can't be checked now.
        """
        ...


class Iam:
    """The platform has checked the token, and has cut its signature off: there is nothing left here to verify.

    Where the platform's check is switched off this proves nothing: such a service needs `oidc`.

    Args:
        callers: the e-mail addresses that may call, of those whom the platform lets through; none: all of these.
        on_platform: whether there is a platform. Without one, everybody may call; nobody, where `callers` are named.
    """

    def __init__(self, callers: tuple[str, ...], *, on_platform: bool) -> None:
        self._callers = callers
        self._on_platform = on_platform

    def check(self, request: Request) -> None:
        """Sees that the platform's token is there, and whose it is."""
        if not self._on_platform:
            if self._callers:  # whoever can write a name into a token would pass for them
                raise Unverifiable(
                    "DEDUP_CALLERS with DEDUP_AUTH=iam needs Cloud Run or Cloud Functions in front (K_SERVICE): use oidc"
                )
            return
        name = _FROM_THE_PLATFORM if _FROM_THE_PLATFORM in request.headers else "Authorization"
        token = _Token.read(request, name)
        if self._callers:
            _require_caller(token.claims, self._callers)


class Oidc:
    """Verifies Google's OpenID Connect token here, where no platform does.

    Args:
        audience: what the token must have been made for: the URL that the job is set to.
        callers: the e-mail addresses that may call.
        certificates: where keys come from; None: Google.
    """

    def __init__(self, audience: str, callers: tuple[str, ...], certificates: Certificates | None = None) -> None:
        # Here, not above: who doesn't choose this needn't load it at each cold start.
        from google.auth import exceptions, jwt

        self._audience = audience
        self._callers = callers
        self._certificates = certificates if certificates is not None else Certificates()
        self._decode: Callable[..., Mapping[str, Any]] = jwt.decode
        self._faults = (ValueError, TypeError, exceptions.GoogleAuthError)

    def check(self, request: Request) -> None:
        """Verifies form and algorithm first: garbage is refused without asking anybody for certificates."""
        token = _Token.read(request, "Authorization")
        key_id = token.header.get("kid")
        if token.header.get("alg") != "RS256" or not isinstance(key_id, str):
            raise Unauthenticated("the token is not signed as Google signs, with RS256 and a key's id")
        certificate = self._certificates.get(key_id)
        if certificate is None:
            raise Unauthenticated("the token is signed by a key that is none of Google's")
        try:
            claims = self._decode(
                token.text,
                certs={key_id: certificate},
                audience=self._audience,
                clock_skew_in_seconds=CLOCK_SKEW_SECONDS,
            )
        except self._faults as fault:
            raise Unauthenticated(f"the token is not valid: {fault}") from fault
        if claims.get("iss") not in ISSUERS:
            raise Unauthenticated("the token was not issued by Google")
        if claims.get("email_verified") is not True:
            raise Forbidden("the token's e-mail address is not verified")
        _require_caller(claims, self._callers)


class AppEngine:
    """App Engine takes this header off every request from outside: one that has it is from Cloud Scheduler."""

    def check(self, request: Request) -> None:
        """Looks for the header."""
        if request.headers.get("X-Appengine-Cron") != "true":
            raise Forbidden("X-Appengine-Cron is missing: only Cloud Scheduler's App Engine jobs may call")


def open_auth(kind: Kind, *, audience: str, callers: tuple[str, ...], on_platform: bool) -> Auth:
    """Makes the means that settings name. Imports what it needs, and asks nobody yet.

    Args:
        kind: which.
        audience: of `oidc`.
        callers: of `oidc` and `iam`.
        on_platform: whether Cloud Run or Cloud Functions stand in front.
    """
    match kind:
        case Kind.IAM:
            return Iam(callers, on_platform=on_platform)
        case Kind.OIDC:
            return Oidc(audience, callers)
        case Kind.APP_ENGINE:
            return AppEngine()


class Certificates:
    """Google's certificates, fetched when they are needed and kept for as long as Google says.

    One fetch goes on at a time, in a thread of its own. That alone bounds it: no time-out of a socket covers looking up a name.

    Args:
        url: where they are.
        seconds: how long a caller waits for them.
        monotonic: a clock in seconds.
    """

    def __init__(
        self, url: str = CERTIFICATES_URL, *, seconds: float = FETCH_SECONDS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        from google.auth.transport import requests

        self._request = requests.Request
        self._url = url
        self._seconds = seconds
        self._monotonic = monotonic
        self._kept = _Kept({}, float("-inf"), float("-inf"))
        self._fetching: Future[_Kept] | None = None
        self._starting = threading.Lock()

    def get(self, key_id: str) -> str | None:
        """The certificate of a key; None if Google has no such key.

        Raises:
            Unverifiable: Google can't be asked.
        """
        now = self._monotonic()
        kept = self._kept
        if now >= kept.good_until or (key_id not in kept.by_key_id and now >= kept.fetched_at + UNKNOWN_KEY_SECONDS):
            kept = self._fetch()
        return kept.by_key_id.get(key_id)

    def _fetch(self) -> _Kept:
        with self._starting:
            fetching = self._fetching
            if fetching is None or fetching.done():
                fetching = Future()
                try:
                    threading.Thread(target=self._run, args=(fetching,), name="dedup-certificates", daemon=True).start()
                except RuntimeError as fault:  # no thread to be had just now; the next caller tries again
                    raise Unverifiable(f"no certificates from {self._url}: {fault}") from fault
                self._fetching = fetching
        try:
            return fetching.result(self._seconds)
        except TimeoutError:
            raise Unverifiable(f"{self._url} didn't answer within {self._seconds:g} s") from None

    def _run(self, fetching: Future[_Kept]) -> None:
        try:
            answer = self._request()(self._url, method="GET", timeout=self._seconds)
            if answer.status != 200:
                raise ValueError(f"it answered {answer.status}")
            by_key_id = json.loads(answer.data)
            if not isinstance(by_key_id, dict) or not all(isinstance(pem, str) for pem in by_key_id.values()):
                raise ValueError("it answered no certificates")
            age = re.search(r"\bmax-age=(\d{1,6})", answer.headers.get("Cache-Control", ""))
            now = self._monotonic()
            self._kept = _Kept(by_key_id, now, now + (int(age[1]) if age else KEPT_SECONDS))
        except Exception as fault:  # whatever it is, nobody is let in
            fetching.set_exception(Unverifiable(f"no certificates from {self._url}: {fault}"))
        else:
            fetching.set_result(self._kept)


@dataclass(frozen=True, slots=True)
class _Kept:
    by_key_id: Mapping[str, str]
    fetched_at: float
    good_until: float


@dataclass(frozen=True, slots=True)
class _Token:
    """A JSON Web Token, read and not verified."""

    text: str
    header: Mapping[str, Any]
    claims: Mapping[str, Any]

    @classmethod
    def read(cls, request: Request, name: str) -> _Token:
        scheme, _, text = request.headers.get(name, "").partition(" ")
        if scheme.lower() != "bearer" or not text:
            raise Unauthenticated(f"{name} has no bearer token: let the job send an OIDC token")
        parts = text.strip().split(".")
        if len(parts) != 3:
            raise Unauthenticated(f"what {name} has is no JSON Web Token")
        try:
            header, claims = _json_object(parts[0]), _json_object(parts[1])
        except (ValueError, RecursionError):
            raise Unauthenticated(f"what {name} has is no JSON Web Token") from None
        return cls(text.strip(), header, claims)


def _json_object(segment: str) -> dict[str, Any]:
    value = json.loads(base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _require_caller(claims: Mapping[str, Any], callers: tuple[str, ...]) -> None:
    if claims.get("email") not in callers:
        raise Forbidden("the token's e-mail address is not among DEDUP_CALLERS")
