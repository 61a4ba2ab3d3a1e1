"""For the site: examples in docstrings (`>>>`) as blocks of code, which Markdown would take for quotations."""

import re
from typing import Any

import griffe


def fenced(text: str) -> str:
    r"""A docstring with a fence around every block of lines that begins with `>>>` and ends at an empty line.

    >>> fenced(">>> 1\n1\n\nText.").splitlines()
    ['```pycon', '>>> 1', '1', '```', '', 'Text.']
    """
    return re.sub(r"^>>> (?:.+\n?)+", lambda block: f"```pycon\n{block[0].rstrip()}\n```\n", text, flags=re.MULTILINE)


class Fenced(griffe.Extension):
    """Puts the fences in when a docstring has been read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
