"""Makes the client library fast enough for hundreds of thousands of schedules, without a change to what it does.

What is encoded and decoded is nearly always what was a moment ago in another schedule. The pure functions keep their answers,
and copies are of what can change only; everything else runs as it is.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from google.cloud.firestore_v1 import _helpers, base_client, base_document

KEPT = 20_000


@contextmanager
def fast_client(own_encoders: ModuleType) -> Iterator[None]:
    """The client library, and the encoders beside it, remembering.

    Args:
        own_encoders: `dedup.stores.firestore_write` of the code under test.
    """
    with (
        mock.patch.object(own_encoders, "create", _kept(own_encoders.create)),
        mock.patch.object(own_encoders, "update", _kept(own_encoders.update)),
        mock.patch.object(own_encoders, "delete", _kept(own_encoders.delete)),
        mock.patch.object(_helpers, "pbs_for_update", _kept(_helpers.pbs_for_update)),
        mock.patch.object(base_client, "_parse_batch_get", _parsed(base_client._parse_batch_get)),
        mock.patch.object(base_document, "copy", SimpleNamespace(deepcopy=_copied)),
        # Who has logged, and in which thread, isn't looked at.
        mock.patch.multiple(logging, _srcfile=None, logThreads=False, logProcesses=False, logMultiprocessing=False),
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


def _copied(value: Any) -> Any:
    """A copy as good as a deep one: texts, numbers and times can't change."""
    return {name: _copied(each) for name, each in value.items()} if isinstance(value, dict) else value


def _key(argument: Any) -> Any:
    if isinstance(argument, dict):
        return tuple(argument.items())
    if isinstance(argument, _helpers.WriteOption):
        return type(argument), *vars(argument).values()
    return argument


def _parsed(parse: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    @functools.wraps(parse)
    def parsed(get_doc_response: Any, reference_map: Any, client: Any) -> Any:
        key = client, get_doc_response._pb.SerializeToString()
        answer = kept.get(key)
        if answer is None:
            if len(kept) >= KEPT:
                kept.clear()
            answer = kept[key] = parse(get_doc_response, reference_map, client)
        return answer

    return parsed
