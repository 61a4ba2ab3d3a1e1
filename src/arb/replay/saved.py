"""A whole buffer in a file: its rows, their columns, what made it, and a sum that tells whether it was altered."""

import os
from typing import Any

from arb.errors import DataError
from arb.files import digest, read_state, write_state
from arb.replay.dataset import Boundaries
from arb.replay.index import Ints, Ledger, State
from arb.replay.intake import Intake
from arb.replay.rows import refuse_altered

FORMAT = 2
_VALUES, _GROUPS = ("format", "made", "loaded", "since"), ("storage", "ended")
"""What a file holds beside the state of the rows: values of its header, and groups of arrays."""

Path = str | os.PathLike[str]


def write_buffer(path: Path, intake: Intake, boundaries: Boundaries, loaded: str, since: int) -> None:
    """Write everything that decides the future of a buffer; columns only of the rows from `since` on."""
    rows = intake.rows
    with rows.lock:
        header, parts = rows.state()
        made = _made(intake, boundaries)
        own = {"format": FORMAT, "made": made, "loaded": [loaded, intake.offline], "since": since}
        columns = {"storage": intake.storage.state(_rows_since(rows.ledger, since)), "ended": intake.state()}
        write_state(path, header | own | {"own_sum": digest(own, columns)}, parts | columns)


def read_buffer(path: Path, intake: Intake, boundaries: Boundaries, loaded: str) -> str:
    """Put a buffer's state back, or refuse it before anything has changed; returns the name of what was loaded."""
    header, parts = read_state(path)
    rows, storage = intake.rows, intake.storage
    try:
        with rows.lock:
            _refuse_other(header, parts, _made(intake, boundaries), rows.ledger, loaded)
            storage.refuse_other_columns(parts.get("storage", {}))
            rows.restore(header, parts)
            storage.restore(parts.get("storage", {}), _rows_since(rows.ledger, header["since"]))
            intake.restore(parts["ended"])
            name, intake.offline = header["loaded"]
            return str(name)
    except DataError as problem:
        raise DataError(f"{path}: {problem}") from None


def _made(intake: Intake, boundaries: Boundaries) -> dict[str, Any]:
    """What a saved buffer must have in common with the one that continues it."""
    return {
        "gamma": intake.gamma,
        "boundaries": boundaries,
        "failure_reward": intake.failure_reward,
        "discontinuity": intake.discontinuity,
        "action_bounds": None if intake.bounds is None else [bound.tolist() for bound in intake.bounds],
        "autoreset": intake.autoreset,
    }


def _refuse_other(
    header: dict[str, Any], parts: dict[str, State], made: dict[str, Any], ledger: Ledger, loaded: str
) -> None:
    """Refuse a file of another version, an altered one, and one of a buffer that was made otherwise."""
    if header.get("format") != FORMAT:
        raise DataError(
            f"saved in format {header.get('format')}, and this version reads format {FORMAT}: continue with the "
            "version that saved it, or start again"
        )
    refuse_altered(header, parts, "own_sum", _VALUES, _GROUPS)
    for name, ours in made.items():
        if header["made"][name] != ours:
            raise DataError(f"saved with {name}={header['made'][name]}, and this buffer has {name}={ours}")
    since = header["since"]
    if since not in (0, ledger.head):
        raise DataError(
            f"leaves out a dataset of {since} rows: load it into this buffer first, and nothing else (there are "
            f"{ledger.head} rows)"
        )
    if since and header["loaded"][0] != loaded:
        raise DataError("leaves out a dataset, and another one of the same size was loaded into this buffer")


def _rows_since(ledger: Ledger, sequence: int) -> Ints | slice:
    return ledger.rows_between(min(max(sequence, ledger.oldest), ledger.head), ledger.head)
