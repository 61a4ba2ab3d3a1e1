"""ARB inside TorchRL: a sampler for its replay buffers, and the hook that refreshes it.

    sampler = StrategySampler(arb.ARB(temperature="auto"), seed=0)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100_000), sampler=sampler, batch_size=256)
    with sampler.offline():
        buffer.extend(as_collected(dataset))
    ...
    sampler.refresh(actor, buffer)

Storage, writer and buffer stay the host's. The host tells a sampler which rows it wrote, and nothing of what is in
them; their trajectories are read from the storage at that moment.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.files import flattened, grouped, read_state, write_state
from arb.replay.arb import ARB
from arb.replay.index import ReplayIndex
from arb.replay.samplers import Sampler, State
from arb.replay.scores import CHUNK, Likelihood, as_numpy

try:
    import torch
    from torchrl.data.replay_buffers.samplers import Sampler as HostSampler
    from torchrl.trainers import TrainerHookBase

    from arb.adapters.tensordicts import COLLECTED, actor_log_likelihood, as_collected
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"arb.adapters.torchrl needs {missing.name}: pip install 'arb-rl[torchrl]'", name=missing.name
    ) from None

__all__ = ["RefreshHook", "StrategySampler", "actor_log_likelihood", "as_collected"]

OFFLINE_KEYS = (COLLECTED, "traj_ids", "episode")
"""Where datasets write it."""
DONE = ("next", "done")

_FILE = "rows.npz"


class StrategySampler(HostSampler):
    """A sampler of TorchRL that draws by a strategy of ours, for storages of one dimension.

    Rows are online unless they are written inside `offline()`, or were in the storage before the sampler saw it. The
    trajectory of an online row is what the collector wrote beside it; without that, rows are steps of one environment,
    one after the other. In any case `("next", "done")` ends a trajectory.

    Args:
        sampler: the strategy; ARB with its defaults if not given. A copy of it is used.
        seed: random seed.
        trajectory_key: where the number of a row's trajectory is, if not where TorchRL writes it.
    """

    def __init__(self, sampler: Sampler | None = None, *, seed: int | None = None, trajectory_key: Any = None):
        self._strategy = ARB() if sampler is None else sampler
        self._seeds = np.random.SeedSequence(seed)
        self._online_keys = (COLLECTED,) if trajectory_key is None else (trajectory_key,)
        self._offline_keys = OFFLINE_KEYS if trajectory_key is None else (trajectory_key,)
        self._is_offline = False
        self._storage: Any = None
        self._index: ReplayIndex | None = None

    def __repr__(self) -> str:
        return f"StrategySampler({self._index.summary if self._index else repr(self._strategy)})"

    @property
    def index(self) -> ReplayIndex:
        """Trajectories, origins and weights of the rows of the storage."""
        if self._index is None:
            raise DataError("this sampler has seen no rows yet: extend the buffer first")
        return self._index

    def stats(self) -> dict[str, float]:
        """Figures about the sampling distribution; docs/reference/metrics.md explains them."""
        return self.index.stats()

    # ---- experience in -------------------------------------------------------------------------------------------
    @contextmanager
    def offline(self) -> Iterator[None]:
        """Rows written inside are past experience: whole trajectories, the last of each call ended by its end."""
        self._is_offline = True
        try:
            yield
        finally:
            self._is_offline = False

    def mark_update(self, index: Any, *, storage: Any = None) -> None:  # noqa: ARG002 - the host's signature
        """The host calls this before `extend` and `add`, and only here says where it wrote."""
        self._storage = storage

    def add(self, index: Any) -> None:
        """One row was written."""
        self.extend(index)

    def extend(self, index: Any) -> None:
        """These rows were written, one after the other."""
        written = as_numpy(torch.as_tensor(index))
        if written.ndim > 1:
            raise DataError("StrategySampler needs a storage of one dimension: write data.reshape(-1), and no ndim=2")
        written = written.reshape(-1)
        rows = self._adopted(int(written[0]))
        head, capacity = rows.num_added, rows.capacity
        if len(written) > capacity or not np.array_equal(written, np.arange(head, head + len(written)) % capacity):
            raise DataError(
                f"{len(written)} rows were written from row {written[0]} of {capacity} on, but row {head % capacity} "
                "was next: StrategySampler needs a round-robin writer, and no call larger than the storage"
            )
        trajectory, done = self._marks(written)
        if self._is_offline:
            ends = done if trajectory is None else np.diff(trajectory, append=-1)
            rows.extend(_lengths(ends))
            return
        streams = np.zeros_like(done) if trajectory is None else trajectory
        rows.append(streams.tolist(), done.tolist())

    def close(self) -> None:
        """End all trajectories that are open: a new collector begins, which counts its trajectories from 0 again."""
        for stream in self.index.open_envs():
            self.index.close(stream)

    def _adopted(self, held: int) -> ReplayIndex:
        """The rows of the storage; the first `held`, if it held them before this sampler saw it, are offline."""
        if self._index is None:
            self._index = ReplayIndex(self._storage.max_size, copy.deepcopy(self._strategy), self._seeds)
            if held:
                with self.offline():
                    self.extend(np.arange(held))
        return self._index

    def _marks(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
        """Of these rows, the number of their trajectory, if it is stored, and whether it is done."""
        stored = self._storage.get(slice(None))
        columns = stored if hasattr(stored, "batch_size") else {}  # what is no tensordict has no such columns
        trajectory = _column(columns, self._offline_keys if self._is_offline else self._online_keys, rows)
        done = _column(columns, (DONE,), rows)
        if trajectory is None and done is None and self._strategy.needs_scores:
            raise DataError(
                f"the stored rows have neither {DONE} nor the number of their trajectory, which "
                f"{type(self._strategy).__name__} needs: keep one of them, or name yours by trajectory_key"
            )
        return trajectory, np.zeros(len(rows), np.int64) if done is None else done

    # ---- batches out ---------------------------------------------------------------------------------------------
    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """Rows of the storage, drawn with replacement."""
        if len(storage) == 0:
            raise DataError("an empty storage cannot be sampled: extend the buffer first")
        rows = self._synchronised(storage)
        drawn = rows.sample_indices(batch_size)
        rows.train(drawn, lambda chosen: _observed(storage.get(chosen)))
        return torch.from_numpy(drawn), {}

    def refresh(self, actor: Any, buffer: Any, *, likelihood: Likelihood = "standard", chunk: int = CHUNK) -> None:
        """Weigh the rows of the buffer this sampler serves anew, by what `actor` would do now.

        See `actor_log_likelihood` for which actors can be asked. The buffer's transforms are applied, as in a sample.
        """
        rows = self._synchronised(buffer.storage)
        rows.refresh(lambda chosen: actor_log_likelihood(actor, buffer[chosen], likelihood), chunk=chunk)

    def is_due(self, every: int) -> bool:
        """Whether `every` rows were added since the last refresh, or there was none yet."""
        return self._index is None or self._index.is_due(every)

    def _synchronised(self, storage: Any) -> ReplayIndex:
        self._storage = storage
        rows = self._adopted(len(storage))
        if len(rows) != len(storage):
            raise DataError(
                f"the storage has {len(storage)} rows, but this sampler was told of {len(rows)}: do not let other "
                "processes or buffers write to it; iterate over the collector and call buffer.extend yourself"
            )
        return rows

    # ---- saving --------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future draws."""
        if self._index is None:
            return {}
        header, parts = self.index.state()
        tensors = {key: torch.from_numpy(array.copy()) for key, array in flattened(parts).items()}
        return {"header": json.dumps(header), **tensors}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue as the sampler whose state this is."""
        self._empty()
        if state_dict:
            arrays = {key: as_numpy(value).copy() for key, value in state_dict.items() if key != "header"}
            self._restore(json.loads(state_dict["header"]), grouped(arrays))

    def dumps(self, path: Any) -> None:
        """Write the state into this folder."""
        Path(path).mkdir(exist_ok=True, parents=True)
        if self._index is not None:
            write_state(Path(path) / _FILE, *self.index.state())

    def loads(self, path: Any) -> None:
        """Continue as the sampler that was written to this folder."""
        self._empty()
        if (Path(path) / _FILE).exists():
            self._restore(*read_state(Path(path) / _FILE))

    def _restore(self, header: dict[str, Any], parts: dict[str, State]) -> None:
        capacity = int(parts["index"]["counters"][0])
        self._index = ReplayIndex(capacity, copy.deepcopy(self._strategy), self._seeds)
        self._index.restore(header, parts)
        self.close()

    def _empty(self) -> None:
        self._index = None


def _observed(stored: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """What a strategy that learns its weights looks at."""
    return as_numpy(stored.get("observation")), as_numpy(stored.get("action"))


def _lengths(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lengths of the trajectories whose last rows are marked; the last row of all ends one in any case."""
    last = np.append(ends[:-1] != 0, True)
    return np.diff(np.flatnonzero(last), prepend=-1)


def _column(columns: Any, keys: tuple[Any, ...], rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The first of these columns that is there, one integer for each of the rows."""
    found = (columns.get(key, None) for key in keys)
    column = next((column for column in found if column is not None), None)
    return None if column is None else as_numpy(column[rows]).reshape(len(rows), -1).max(1).astype(np.int64)


class RefreshHook(TrainerHookBase):
    """Refreshes a sampler whenever `every` rows were added: `RefreshHook(sampler, actor, buffer).register(trainer)`.

    In a loop of your own, call it before the updates. It runs at `pre_epoch`, when the trainer has stored what it
    collected.
    """

    def __init__(
        self,
        sampler: StrategySampler,
        actor: Any,
        buffer: Any,
        *,
        every: int = 1000,
        likelihood: Likelihood = "standard",
    ):
        self.sampler, self.actor, self.buffer, self.every, self.likelihood = sampler, actor, buffer, every, likelihood

    def __call__(self, batch: Any = None) -> Any:
        """Refresh if it is time; hands on the batch untouched."""
        if self.sampler.is_due(self.every):
            self.sampler.refresh(self.actor, self.buffer, likelihood=self.likelihood)
        return batch

    def register(self, trainer: Any, name: str = "refresh") -> None:
        """Run in this trainer; register it after the trainer has its replay buffer."""
        trainer.register_op("pre_epoch", self)
        trainer.register_module(name, self)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: when the last refresh was is the sampler's to know."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Nothing to load."""
