"""Code of one's own by name: `my_module:MyStrategy`, `my_module:MyAgent`.

Such a name comes from the command line or from Python. A name that was read from a file is never handed to this module.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from arb.errors import DataError, suggest


def is_plug_in(name: str) -> bool:
    """Whether a name asks for code of one's own.

    >>> is_plug_in("my_module:NewestFirst"), is_plug_in("arb")
    (True, False)
    """
    return ":" in name


def label_of(name: str) -> str:
    """A plug-in's name without its module, for people; nothing is imported.

    >>> label_of("my_module:NewestFirst")
    'NewestFirst'
    """
    return name.rpartition(":")[2]


def plug_in(name: str) -> Any:
    """The object of a name `module:object`; the module may lie in the working directory."""
    module, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as missing:
        where = f"{Path.cwd()} or installed" if missing.name == module.partition(".")[0] else "installed"
        raise DataError(f"{name}: there is no module {missing.name!r} in {where}") from None
    except Exception as problem:
        raise DataError(f"{name}: importing {module!r} failed ({type(problem).__name__}: {problem})") from problem
    if not hasattr(found, attribute):
        names = [word for word in vars(found) if not word.startswith("_")]
        raise DataError(f"{name}: {module!r} has no {attribute!r}{suggest(attribute, names)}")
    return getattr(found, attribute)
