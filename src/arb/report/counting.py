"""How many of something, in words."""


def count(number: int, noun: str) -> str:
    """A number and its noun, which takes an s unless there is one.

    >>> count(1, "run"), count(0, "run"), count(1200, "pre-training")
    ('1 run', '0 runs', '1,200 pre-trainings')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
