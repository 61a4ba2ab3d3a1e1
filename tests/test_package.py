"""What the package as a whole promises: light to import, layered, documented by examples that run."""

import ast
import builtins
import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import arb

SOURCE = Path(arb.__file__).parent


def test_import_takes_numpy_only():
    code = """
import sys
before = set(sys.modules)
import arb
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = loaded & {"jax", "jaxlib", "torch", "gymnasium", "h5py", "mujoco", "matplotlib", "optax", "scipy"}
assert not heavy, heavy
foreign = {name for name in loaded if name not in sys.stdlib_module_names and not name.startswith("_")}
assert foreign <= {"arb", "numpy", "cython_runtime"}, foreign  # the last is a part of numpy.random
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_import_is_fast():
    code = """
import time
import numpy
start = time.process_time()
import arb
print(time.process_time() - start)
"""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 0.3


@pytest.mark.parametrize(
    "name", ["data.read_dataset", "envs.make", "testing.check_sampler", "agents.IQL", "adapters.cleanrl.ReplayBuffer"]
)
def test_parts_are_there_after_a_plain_import(name):
    code = f"import arb; assert '{name.split('.')[0]}' in dir(arb); print(arb.{name}.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == name.split(".")[-1]


def test_optional_parts_may_be_missing():
    code = """
import sys
for name in ("jax", "gymnasium", "mujoco", "h5py", "matplotlib", "scipy", "optax", "safetensors", "rich"):
    sys.modules[name] = None
import inspect, pydoc, arb
names = {name for name, _ in inspect.getmembers(arb)}
assert {"ARB", "policies", "load_policy", "testing"} <= names, names
assert not hasattr(arb, "agents")
try:
    arb.agents
except AttributeError as missing:
    assert "pip install 'arb-rl[train]'" in str(missing), missing
assert "ReplayBuffer" in pydoc.render_doc(arb)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("place", [arb, arb.adapters], ids=["arb", "arb.adapters"])
def test_a_name_that_is_not_there_is_an_attribute_error(place):
    assert not hasattr(place, "adaptors")
    assert "adaptors" not in dir(place)


WITHIN = {
    # errors that another part of the package catches and tells anew, or that Python itself asks for
    "envs/simulation.py", "files.py", "policies/export.py", "__init__.py",
    "adapters/__init__.py", "lab/ray.py", "lab/sweep.py",
}  # fmt: skip


ALLOWED = {"AssertionError", "ModuleNotFoundError"}
"""A broken promise of a plug-in under test, and a package that is not installed."""


def test_a_users_mistake_raises_one_type_of_error():
    """Every `raise` of a built-in exception is in a module of the list above."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            call = node.exc if isinstance(node, ast.Raise) else None  # one without words is caught where it is raised
            name = getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""
            if name.endswith("Error") and hasattr(builtins, name) and name not in ALLOWED:
                found.setdefault(str(path.relative_to(SOURCE)), set()).add(name)
    assert {name: raised for name, raised in found.items() if name not in WITHIN} == {}
    assert issubclass(arb.DataError, ValueError)


def imported_by(path: Path) -> set[str]:
    """The modules of this project that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name == "arb" or name.startswith("arb.")}


LAYERS = (
    # From the ground up: a package imports only what stands on lines before its own.
    ("errors",),
    ("files", "progress"),
    ("replay",),
    ("adapters", "policies", "envs"),
    ("agents", "data"),
    ("suite",),
    ("lab",),
    ("report",),
    ("paper", "testing", "api"),
    ("cli",),
)
GROUND = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path):
    if path == SOURCE / "__init__.py":
        return
    room = room_of(path)
    for name in imported_by(path):
        other = name.split(".")[1] if "." in name else ""
        assert not other or other == room or GROUND[other] < GROUND[room], f"{room} imports {name}"


def test_public_names_exist_and_are_documented():
    for name in arb.__all__:
        thing = getattr(arb, name)
        assert isinstance(thing, str) or (thing.__doc__ and thing.__doc__.strip()), name


def modules() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages([str(SOURCE)], "arb.")]
    return [name for name in names if not name.startswith("arb.adapters") and not name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
