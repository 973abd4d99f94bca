"""Modules that run on first use: what a thread, a tool or a failure sees of one is what it would see of any other.

Each test runs in a process of its own, with a folder of small modules added to the package.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.feature("F10")
BEGIN = """
import sys, threading, time, types
import takeback, takeback.lazy
takeback.__path__.append(sys.argv[1])
def waits(module): return type(module).__name__ == "_Later"
"""


def run(folder: Path, script: str, **modules: str) -> None:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-c", BEGIN + textwrap.dedent(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_binds_a_name_and_touching_it_runs_the_code(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        from takeback import first, second
        import takeback.first
        assert waits(first) and waits(second) and first is sys.modules["takeback.first"]
        assert first.VALUE == 1 and not waits(first) and waits(second)
        from takeback.second import VALUE
        assert not waits(second) and VALUE == 2
        assert type(first) is types.ModuleType
        """,
        first="VALUE = 1",
        second="VALUE = 2",
    )


def test_threads_see_a_module_whole_and_run_it_once(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        from takeback import slow
        together, seen = threading.Barrier(8), []
        def touch():
            together.wait()
            seen.append(slow.LAST)
        threads = [threading.Thread(target=touch) for _ in range(8)]
        [each.start() for each in threads], [each.join() for each in threads]
        assert seen == [2] * 8 and sys.runs == 1
        """,
        slow="""
        import sys, time
        sys.runs = getattr(sys, "runs", 0) + 1
        FIRST = 1
        time.sleep(0.2)
        LAST = 2
        """,
    )


def test_threads_that_load_the_modules_of_a_cycle_do_not_wait_for_each_other(tmp_path: Path) -> None:
    half = """
    import time
    FIRST = 1
    time.sleep(0.1)
    from takeback.{other} import FIRST as THEIRS
    def other():
        from takeback import {other}
        return {other}.LAST
    LAST = 2
    """
    run(
        tmp_path,
        """
        from takeback import left, right
        seen = []
        threads = [threading.Thread(target=lambda m=m: seen.append(m.other()), daemon=True) for m in (left, right)]
        [each.start() for each in threads], [each.join(20) for each in threads]
        assert seen == [2, 2]
        """,
        left=half.format(other="right"),
        right=half.format(other="left"),
    )


def test_threads_that_load_and_import_at_once_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """One runs a module that imports another; the other imports that one while it runs the first."""
    run(
        tmp_path,
        """
        from takeback import first
        def take():
            from takeback.second import LAST
            seen.append(LAST)
        seen, steps = [], (take, lambda: seen.append(first.LAST))
        threads = [threading.Thread(target=each, daemon=True) for each in steps]
        [each.start() for each in threads], [each.join(20) for each in threads]
        assert sorted(seen) == [1, 2]
        """,
        first="import time; time.sleep(0.1); from takeback.second import FIRST; LAST = 1",
        second="FIRST = 0; import time; time.sleep(0.1); from takeback import first; first.__spec__; LAST = 2",
    )


def test_a_process_that_forks_while_a_thread_loads_a_module_has_it_whole(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import os, signal
        from takeback import slow, other
        thread = threading.Thread(target=lambda: slow.LAST)
        thread.start()
        while not hasattr(sys, "begun"):
            time.sleep(0.001)
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends a child that waits for ever
            os._exit(0 if (slow.LAST, other.LAST) == (2, 2) else 1)
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and other.LAST == 2
        """,
        slow="import sys, time; FIRST = 1; sys.begun = True; time.sleep(0.3); LAST = 2",
        other="LAST = 2",
    )


def test_a_module_that_fails_raises_again_and_can_be_put_right(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        from takeback import broken
        for _ in range(2):
            try:
                broken.VALUE
            except ZeroDivisionError:
                assert waits(broken)
            else:
                raise AssertionError
        sys.fine = True
        assert broken.VALUE == 1
        """,
        broken="import sys; VALUE = 1 if hasattr(sys, 'fine') else 1 // 0",
    )


def test_a_mistake_in_a_module_does_not_pass_for_a_missing_name(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        from takeback import wrong
        for look in (lambda: hasattr(wrong, "VALUE"), lambda: __import__("takeback.wrong", fromlist=["VALUE"]).VALUE):
            try:
                look()
            except ImportError as error:
                assert "has no attribute 'nosuch'" in str(error) and error.name == "takeback.wrong"
            else:
                raise AssertionError
        try:
            from takeback import absent
        except ImportError as error:
            assert "absent" in str(error)
        else:
            raise AssertionError
        """,
        wrong="import sys; VALUE = sys.nosuch",
    )


def test_what_is_set_before_the_code_runs_stays(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        from takeback import first, second
        first.VALUE = "ours"
        assert waits(first)
        assert (first.VALUE, first.OTHER) == ("ours", 2)
        del second.VALUE
        assert not hasattr(second, "VALUE") and second.OTHER == 2
        """,
        first="VALUE = 1; OTHER = 2",
        second="VALUE = 1; OTHER = 2",
    )


def test_tools_that_walk_all_modules_run_none(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import inspect, warnings
        from takeback import first
        inspect.getmodule(run := sys._getframe())
        assert all(getattr(each, "__file__", None) is not False for each in [*sys.modules.values()])
        assert isinstance(first, types.ModuleType) and first.__name__ == "takeback.first" and first.__file__
        assert repr(first).startswith("<module 'takeback.first' from ")
        assert waits(first)
        """,
        first="VALUE = 1",
    )


def test_people_who_look_into_a_module_see_all_of_it(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import importlib, inspect, pickle, pkgutil, pydoc
        from takeback import first, second, third, fourth
        assert "answer" in dir(first) and "Of this module." == second.__doc__
        assert "answer() -> int" in pydoc.plain(pydoc.render_doc(third))
        assert "return 42" in inspect.getsource(fourth.answer) and inspect.getmodule(fourth.answer) is fourth
        assert pickle.loads(pickle.dumps(fourth.Value)) is fourth.Value
        assert {"first", "lazy"} <= {each.name for each in pkgutil.iter_modules(takeback.__path__)}
        first.added = 1
        assert importlib.reload(first) is first and first.answer() == 42 and first.added == 1
        """,
        **dict.fromkeys(
            ("first", "second", "third", "fourth"),
            """
            '''Of this module.'''
            class Value: pass
            def answer() -> int:
                return 42
            """,
        ),
    )


def test_extensions_of_typing_are_used_where_they_are_loaded(tmp_path: Path) -> None:
    said = "msgspec._utils._get_type_hints.__module__"
    run(
        tmp_path, f"takeback.open; import msgspec; assert {said} == 'typing' and 'typing_extensions' not in sys.modules"
    )
    script = "import typing_extensions; takeback.open; import msgspec"
    run(tmp_path, f"{script}; assert msgspec._utils._get_type_hints is typing_extensions.get_type_hints")


LOAD_ALL = """
import importlib, pkgutil
for each in sorted(each.name for each in pkgutil.walk_packages(takeback.__path__, "takeback.")):
    if not each.endswith("__main__"):
        vars(importlib.import_module(each))
"""


def test_every_module_can_run(tmp_path: Path) -> None:
    run(tmp_path, LOAD_ALL)


def test_every_module_also_loads_at_once_where_others_load_it(tmp_path: Path) -> None:
    """So do pytest, for the modules whose assertions it rewrites, and programs that pack an application."""
    script = """
    from importlib.machinery import PathFinder
    sys.meta_path.insert(0, type("Other", (), {"find_spec": staticmethod(PathFinder.find_spec)}))
    """
    kept = "assert not [name for name, module in sys.modules.items() if waits(module)]"
    run(tmp_path, f"{textwrap.dedent(script)}\n{LOAD_ALL}\n{kept}")
