"""Modules that run on first use: importing one binds its name, and touching it runs its code.

``from ..ops import sessions`` costs little until a function uses ``sessions.get``; ``from .x import Name`` runs ``x``
at once, because it takes an attribute. So a module imports other modules at its top, where readers, type checkers and
the linter of layers see them, and a process still pays only for the code that it runs.

The one invariant: no module of ours runs while the lock of an import is held, so our lock is always taken before those
of the import system. The standard ``LazyLoader`` does not do: up to Python 3.12.2 a second thread can see a half-loaded
module, and later two threads can wait for each other. A module that fails to load stays unloaded, and raises again on
the next use.
"""

from __future__ import annotations

import builtins
import os
import sys
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import RLock
from types import ModuleType
from typing import Any

_OURS = f"{__package__}."
_KNOWN = {"__class__", "__spec__", "__name__", "__path__", "__file__", "__loader__", "__package__", "__cached__"}
_loading = RLock()  # one for all of ours: threads that load modules of a cycle must not wait for each other
_more = set[str]()  # names of other modules to load on first use
# What modules import and can do without: a stand-in for it, or None. msgspec takes only names from typing_extensions
# that typing has in all Pythons we support, and loading that would take a tenth of the time to open a store.
_stand_ins: dict[str, dict[str, Any]] = {"msgspec._utils": {"typing_extensions": None}}


def install() -> None:
    """Load the modules of this package on first use, where they are plain source files."""
    if PathFinder in sys.meta_path:
        # Before it, but behind the finders of pytest, freezers and others that load modules in their own way.
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)
        # A child gets only the thread that forked: no other may be in the middle of a module then.
        release = _loading.release
        os.register_at_fork(before=_loading.acquire, after_in_parent=release, after_in_child=release)


def add(*names: str) -> None:
    """Load other modules on first use too; only for a process that is ours alone."""
    _more.update(names)


def replace(importer: str, name: str, stand_in: Any) -> None:
    """Let a module import a stand-in for one that is not loaded yet; only for a process that is ours alone."""
    _stand_ins.setdefault(importer, {})[name] = stand_in


class _Later(ModuleType):
    """A module whose code has not run yet."""

    def __getattribute__(self, name: str) -> Any:
        # The import system and tools that walk sys.modules ask for these, and they are known without running code.
        if name not in _KNOWN:
            _load(self)
        return ModuleType.__getattribute__(self, name)

    def __delattr__(self, name: str) -> None:
        _load(self)
        ModuleType.__delattr__(self, name)


class _Loader(SourceFileLoader):
    """Run a module's code on first use; everything else as for any source file."""

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader_state = dict(module.__dict__)
        self.lock = _loading if spec.name.startswith(_OURS) else RLock()
        module.__class__ = _Later


def _load(module: ModuleType) -> None:
    """Run a module's code, unless that has happened or this thread is doing it."""
    spec: ModuleSpec = ModuleType.__getattribute__(module, "__spec__")
    loader = spec.loader
    assert isinstance(loader, _Loader)
    with loader.lock:
        before: dict[str, Any] | None = spec.loader_state
        if before is None:
            return
        spec.loader_state = None
        names = ModuleType.__getattribute__(module, "__dict__")
        # Submodules and whatever else was set from outside: on a loaded module that would have come after its code.
        given = {name: value for name, value in names.items() if name not in before or before[name] is not value}
        try:
            SourceFileLoader.exec_module(loader, module)
        except BaseException as error:
            names.clear()
            names.update(before | given)
            spec.loader_state = before
            if isinstance(error, AttributeError):  # hasattr and "from" would take it for a name that is missing
                raise ImportError(f"{spec.name} cannot be loaded: {error}", name=spec.name) from error
            raise
        names.update(given)
        module.__class__ = ModuleType


class _Partial(SourceFileLoader):
    """Run a module that has stand-ins: its own ``__import__`` knows them, so nobody else can get to see one."""

    def exec_module(self, module: ModuleType) -> None:
        stand_ins = _stand_ins[module.__name__]

        def without(name: str, *args: Any, **kwargs: Any) -> Any:
            if name not in stand_ins or name in sys.modules:
                return __import__(name, *args, **kwargs)
            if stand_ins[name] is None:
                raise ImportError(name)
            return stand_ins[name]

        module.__dict__["__builtins__"] = {**builtins.__dict__, "__import__": without}
        super().exec_module(module)


@cache
def _listed(folder: str) -> frozenset[str]:
    """List a folder of ours once: most modules that are imported never run, so finding them must be cheap."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # such as in an archive
        return frozenset()


class _Finder:
    """Finds the modules that this module loads."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        later = name.startswith(_OURS) or name in _more
        if not later and name not in _stand_ins:
            return None
        if name.startswith(_OURS) and path and (file := f"{name.rpartition('.')[2]}.py") in _listed(path[0]):
            where = f"{path[0]}/{file}"
            spec = ModuleSpec(name, _Loader(name, where), origin=where)
            spec.has_location = True
            return spec
        found = PathFinder.find_spec(name, path, target)
        if found is not None and type(found.loader) is SourceFileLoader:
            found.loader = (_Loader if later else _Partial)(found.loader.name, found.loader.path)
        return found
