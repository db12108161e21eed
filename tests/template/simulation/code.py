"""The code under test: the real modules, or fresh ones of the same text with a fault sown into it."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dedup

Changes = Mapping[str, Sequence[tuple[str, str]]]
"""By file below `dedup/`: texts that are there exactly once, and what takes their place."""

_FOLDER = Path(dedup.__file__).parent
_PARTS = ("handler", "lease", "record", "run", "settings", "stores", "stores.firestore", "stores.tries", "stores.conditional")


def load(changes: Changes | None = None) -> SimpleNamespace:
    """The modules of `dedup` by name (`code.handler`, `code.firestore`), loaded anew where there are changes.

    `code.settled` has the ends of schedules from which retries were seen to end the run: the same record, but for its times and
    ids, is retried once.

    Raises:
        LookupError: a text that is to be changed isn't there once: the code has moved on, and the change must follow.
    """
    if not changes:
        return _modules()
    texts = {_FOLDER / file: _changed(_FOLDER / file, replaced) for file, replaced in changes.items()}
    log = logging.getLogger("dedup")
    handlers, level, propagate = log.handlers, log.level, log.propagate
    with _without_dedup():
        finder = _Changed(texts)
        sys.meta_path.insert(0, finder)
        try:
            return _modules()
        finally:
            sys.meta_path.remove(finder)
            log.handlers, log.level, log.propagate = handlers, level, propagate  # loading configures it


def _modules() -> SimpleNamespace:
    modules = {part.rpartition(".")[2]: importlib.import_module(f"dedup.{part}") for part in _PARTS}
    return SimpleNamespace(**modules, settled=set())


def _changed(path: Path, replaced: Sequence[tuple[str, str]]) -> str:
    text = path.read_text()
    for old, new in replaced:
        if text.count(old) != 1:
            raise LookupError(f"{path.name} has this {text.count(old)} times, not once:\n{old}")
        text = text.replace(old, new)
    return text


@contextmanager
def _without_dedup() -> Iterator[None]:
    real = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "dedup"}
    for name in real:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "dedup"]:
            del sys.modules[name]
        sys.modules.update(real)


class _Changed(MetaPathFinder):
    """Finds the modules of `dedup`, and gives the changed ones their changed text."""

    def __init__(self, texts: Mapping[Path, str]) -> None:
        self._texts = texts

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.split(".")[0] != "dedup":
            return None
        place = _FOLDER.joinpath(*fullname.split(".")[1:])
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        spec = spec_from_file_location(fullname, file)
        assert spec is not None
        assert spec.loader is not None
        if file in self._texts:
            text = self._texts[file]
            spec.loader.get_code = lambda _name: compile(text, str(file), "exec")  # type: ignore[attr-defined]
        return spec
