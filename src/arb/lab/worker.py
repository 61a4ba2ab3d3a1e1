"""A worker: a process on one core that takes orders, one JSON object per line, and answers in the same way.

It is started on its core. XLA looks once how many cores there are and never splits a sum on a single one, so a run ends
in the same bytes in a pool, on Ray, and alone on one core.

An order has a `kind` (`run` or `pretrain`), a `config`, a `folder` and a `cache`. It may name `data` to read instead of
what the configuration names, a folder of `modules` to import plug-ins from, and `seconds` after which to save and stop.
Answers are `told` with the progress and at last `done`, `stopped` or `failed`; the last has `final` where another
attempt would fail in the same way. When its input ends, whoever gave the orders is gone: it saves and stops.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arb.lab.child import Answer, Order, Say, serve

Stop = Callable[[], bool]


def main() -> None:
    """Take orders until there are no more."""
    orders, say = serve(at_end=lambda: os.kill(os.getpid(), signal.SIGTERM))
    while (order := orders.get()) is not None:
        say(obey(order, say))


def obey(order: Order, say: Say) -> Answer:
    """Do what an order says; the last answer to it."""
    if order.get("modules") and order["modules"] not in sys.path:
        sys.path.insert(0, order["modules"])
    from arb.errors import DataError
    from arb.lab.config import from_flat
    from arb.lab.setup import Problem
    from arb.lab.stopping import Interrupted, stoppable

    try:
        config = from_flat(order["config"])
        problem = Problem.of(config, order.get("data"))
        do = _KINDS[order["kind"]]
        with stoppable(own_process=True) as asked_to_stop:
            return {"answer": "done", **do(config, problem, order, say, asked_to_stop)}
    except Interrupted as stopped:
        return {"answer": "stopped", "reason": str(stopped)}
    except Exception as failure:
        said, explained = " ".join(str(failure).split()), isinstance(failure, DataError)
        reason = said if explained else f"{type(failure).__name__}: {said}"
        return {"answer": "failed", "reason": reason, "traceback": traceback.format_exc(), "final": explained}


def _run(config: Any, problem: Any, order: Order, say: Say, stop: Stop) -> Answer:
    from arb.lab.run import run

    tell, cache = _teller(order, say), Path(order["cache"])
    result = run(config, order["folder"], tell=tell, cache=cache, problem=problem, stop=stop)
    return {"score": result.last}


def _pretrain(config: Any, problem: Any, order: Order, say: Say, stop: Stop) -> Answer:
    from arb.lab.run import pretrain_for

    folder, cache = Path(order["folder"]), Path(order["cache"])
    kept = pretrain_for(config, folder, cache, tell=_teller(order, say), problem=problem, stop=stop)
    return {"kept": kept.name}


_KINDS = {"run": _run, "pretrain": _pretrain}


def _teller(order: Order, say: Say) -> Callable[[str, int, int, dict[str, float]], None]:
    until = time.monotonic() + order.get("seconds", float("inf"))

    def tell(phase: str, step: int, total: int, figures: dict[str, float]) -> None:
        say({"answer": "told", "phase": phase, "step": step, "total": total, "figures": figures})
        if time.monotonic() > until:
            signal.raise_signal(signal.SIGTERM)  # the run hears it at the end of this very chunk

    return tell


if __name__ == "__main__":
    main()
