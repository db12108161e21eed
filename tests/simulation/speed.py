"""Makes the client library fast enough for hundreds of thousands of schedules, without a change to what it does.

What it is asked to encode and decode is nearly always what it was asked a moment ago in another schedule. Its four pure
functions keep their answers; everything else of it runs as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from google.api_core import datetime_helpers
from google.cloud.firestore_v1 import _helpers
from proto.datetime_helpers import DatetimeWithNanoseconds

KEPT = 20_000


@contextmanager
def fast_client() -> Iterator[None]:
    """The client library, with its encoders and its decoder remembering."""
    with (
        mock.patch.object(_helpers, "pbs_for_create", _kept(_helpers.pbs_for_create)),
        mock.patch.object(_helpers, "pbs_for_update", _kept(_helpers.pbs_for_update)),
        mock.patch.object(_helpers, "pb_for_delete", _kept(_helpers.pb_for_delete)),
        mock.patch.object(_helpers, "decode_dict", _decoded(_helpers.decode_dict)),
        mock.patch.object(DatetimeWithNanoseconds, "__deepcopy__", _itself, create=True),
        mock.patch.object(datetime_helpers.DatetimeWithNanoseconds, "__deepcopy__", _itself, create=True),
    ):
        yield


def _kept(encode: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    @functools.wraps(encode)
    def encoded(*arguments: Any) -> Any:
        key = tuple(_key(argument) for argument in arguments)
        answer = kept.get(key)
        if answer is None:
            if len(kept) >= KEPT:
                kept.clear()
            answer = kept[key] = encode(*arguments)
        return answer

    return encoded


def _itself(moment: Any, _memo: Any) -> Any:
    return moment  # a datetime can't change: its copy is as good as itself


def _key(argument: Any) -> Any:
    if isinstance(argument, dict):
        return tuple(argument.items())
    if isinstance(argument, _helpers.WriteOption):
        return type(argument), *vars(argument).values()
    return argument


def _decoded(decode: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    @functools.wraps(decode)
    def decoded(fields: Any, client: Any) -> Any:
        key = tuple((name, value.SerializeToString()) for name, value in fields.pb.items())
        answer = kept.get(key)
        if answer is None:
            if len(kept) >= KEPT:
                kept.clear()
            answer = kept[key] = decode(fields, client)
        return answer

    return decoded
