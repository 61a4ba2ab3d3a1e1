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
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.files import flattened, grouped, read_state, write_state
from arb.replay.arb import ARB
from arb.replay.dataset import Array, Boundaries, Dataset, as_dataset, leaves
from arb.replay.index import PATIENCE, ReplayIndex
from arb.replay.samplers import Sampler, State
from arb.replay.scores import CHUNK, Likelihood, Score, as_numpy, distance_score, gaussian_score, tanh_gaussian_score

try:
    import torch
    from tensordict import TensorDict
    from torchrl.data.replay_buffers.samplers import Sampler as HostSampler
    from torchrl.modules import Delta, TanhDelta, TanhNormal
    from torchrl.trainers import TrainerHookBase
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"arb.adapters.torchrl needs {missing.name}: pip install 'arb-rl[torchrl]'", name=missing.name
    ) from None

COLLECTED = ("collector", "traj_ids")
"""Where collectors write the trajectory of a row."""
OFFLINE_KEYS = (COLLECTED, "traj_ids", "episode")
"""Where datasets write it."""
DONE = ("next", "done")


class StrategySampler(HostSampler):
    """A sampler of TorchRL that draws by a strategy of ours, for storages of one dimension.

    Rows are online unless they are written inside `offline()`, or were in the storage before the sampler saw it. The
    trajectory of an online row is what the collector wrote beside it; without that, rows are steps of one environment,
    one after the other. In any case `("next", "done")` ends a trajectory. `trajectory_key` says where the number of a
    row's trajectory is, if not where TorchRL writes it. A copy of the strategy is used.
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
        if self._index is None:
            raise DataError("this sampler has seen no rows yet: extend the buffer first")
        return self._index

    def stats(self) -> dict[str, float]:
        """Metrics of the sampling distribution; docs/reference/metrics.md explains them."""
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
        self.extend(index)

    def extend(self, index: Any) -> None:
        written = as_numpy(torch.as_tensor(index))
        if written.ndim > 1:
            raise DataError("StrategySampler needs a storage of one dimension: write data.reshape(-1), and no ndim=2")
        written = written.reshape(-1)
        known = self._adopted(int(written[0]))
        added, capacity = known.num_added, known.capacity
        if len(written) > capacity or not np.array_equal(written, np.arange(added, added + len(written)) % capacity):
            raise DataError(
                f"{len(written)} rows were written from row {written[0]} of {capacity} on, but row {added % capacity} "
                "was next: StrategySampler needs a round-robin writer, and no call larger than the storage"
            )
        trajectory, done = self._marks(written)
        if added == 0 and len(written) >= PATIENCE and not self._is_offline:
            warnings.warn(
                f"{len(written)} rows came at once and count as online steps: if they are past data, extend the buffer "
                "inside `with sampler.offline():`",
                stacklevel=4,
            )
        if self._is_offline:
            ends = done if trajectory is None else np.diff(trajectory, append=-1)
            ends[-1] = 1  # the last row of a call ends a trajectory in any case
            known.extend(np.diff(np.flatnonzero(ends), prepend=-1))
        else:
            known.append((np.zeros_like(done) if trajectory is None else trajectory).tolist(), done.tolist())

    def close(self) -> None:
        """End all trajectories that are open: a new collector begins, which counts its trajectories from 0 again."""
        for env in list(self.index.open):
            self.index.close(env)

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
        columns: Any = stored if hasattr(stored, "batch_size") else {}  # what is no tensordict has no such columns

        def first_of(*keys: Any) -> NDArray[np.int64] | None:
            column = next((columns.get(key) for key in keys if columns.get(key, None) is not None), None)
            return None if column is None else as_numpy(column[rows]).reshape(len(rows), -1).max(1).astype(np.int64)

        trajectory, done = first_of(*(self._offline_keys if self._is_offline else self._online_keys)), first_of(DONE)
        if trajectory is None and done is None and self._strategy.needs_scores:
            raise DataError(
                f"the stored rows have neither {DONE} nor the number of their trajectory, which "
                f"{type(self._strategy).__name__} needs: keep one of them, or name yours by trajectory_key"
            )
        return trajectory, np.zeros(len(rows), np.int64) if done is None else done

    # ---- batches out ---------------------------------------------------------------------------------------------
    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict[str, Any]]:
        if len(storage) == 0:
            raise DataError("an empty storage cannot be sampled: extend the buffer first")
        index = self._synchronised(storage)
        rows = index.sample_indices(batch_size)
        index.train(rows, lambda rows: _observed(storage.get(rows)))
        return torch.from_numpy(rows), {}

    def refresh(
        self,
        actor: Any,
        buffer: Any,
        *,
        likelihood: Likelihood = "standard",
        score: Score | None = None,
        rows_per_call: int = CHUNK,
    ) -> None:
        """Weigh the rows of the buffer this sampler serves anew, by what `actor` would do now.

        See `actor_log_likelihood` for which actors can be asked; any other needs a `score(obs, action)`, which gets the
        `observation` and the `action` of the rows. The buffer's transforms are applied, as in a sample.
        """

        def score_rows(chosen: Any) -> Any:
            batch = buffer[chosen]
            return actor_log_likelihood(actor, batch, likelihood) if score is None else score(*_observed(batch))

        self._synchronised(buffer.storage).refresh(score_rows, rows_per_call=rows_per_call)

    def _synchronised(self, storage: Any) -> ReplayIndex:
        self._storage = storage
        index = self._adopted(len(storage))
        if len(index) != len(storage):
            raise DataError(
                f"the storage has {len(storage)} rows, but this sampler has seen {len(index)}: let only this buffer "
                "write to it; iterate over the collector and call buffer.extend yourself"
            )
        return index

    # ---- saving --------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        if self._index is None:
            return {}
        header, parts = self.index.state()
        tensors = {key: torch.from_numpy(array.copy()) for key, array in flattened(parts).items()}
        return {"header": json.dumps(header), **tensors}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._empty()
        if state_dict:
            arrays = {key: as_numpy(value).copy() for key, value in state_dict.items() if key != "header"}
            self._restore(json.loads(state_dict["header"]), grouped(arrays))

    def dumps(self, path: Any) -> None:
        Path(path).mkdir(exist_ok=True, parents=True)
        if self._index is not None:
            write_state(Path(path) / "index.npz", *self.index.state())

    def loads(self, path: Any) -> None:
        self._empty()
        if (Path(path) / "index.npz").exists():
            self._restore(*read_state(Path(path) / "index.npz"))

    def _restore(self, header: dict[str, Any], parts: dict[str, State]) -> None:
        capacity = int(parts["index"]["counters"][0])
        self._index = ReplayIndex(capacity, copy.deepcopy(self._strategy), self._seeds)
        self._index.restore(header, parts)
        self.close()

    def _empty(self) -> None:  # the host calls it too
        self._index = None


def _observed(batch: Any) -> tuple[Array, Array]:
    return as_numpy(batch.get("observation")), as_numpy(batch.get("action"))


class RefreshHook(TrainerHookBase):
    """Refreshes a sampler whenever `every` rows were added: `RefreshHook(sampler, actor, buffer).register(trainer)`.

    In a loop of your own, call it before the updates. It runs at `pre_epoch`, when the trainer has stored what it
    collected. Further options are those of `refresh`: `likelihood`, `score`.
    """

    def __init__(self, sampler: StrategySampler, actor: Any, buffer: Any, *, every: int = 1000, **options: Any):
        self.sampler, self.actor, self.buffer, self.every, self.options = sampler, actor, buffer, every, options

    def __call__(self, batch: Any = None) -> Any:
        if self.sampler._index is None or self.sampler.index.is_due(self.every):
            self.sampler.refresh(self.actor, self.buffer, **self.options)
        return batch

    def register(self, trainer: Any, name: str = "refresh") -> None:
        """Run in this trainer; register it after the trainer has its replay buffer."""
        trainer.register_op("pre_epoch", self)
        trainer.register_module(name, self)

    def state_dict(self) -> dict[str, Any]:
        return {}  # when the last refresh was is the sampler's to know

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        pass


def actor_log_likelihood(actor: Any, batch: Any, likelihood: Likelihood = "standard") -> Array:
    """How likely the actions of a batch are under an actor: a `ProbabilisticActor`, or a deterministic module.

    A Normal or a TanhNormal is read by its loc and scale: both likelihoods of `arb.replay.scores`, and actions at
    the bounds count as they do everywhere in this library. Of any other distribution it is the `log_prob`, and of a
    deterministic actor `arb.distance_score`.
    """
    device = next((p.device for p in actor.parameters()), None) if hasattr(actor, "parameters") else None
    inputs, action = batch.select(*actor.in_keys).copy(), batch.get("action")
    if device is not None:
        inputs, action = inputs.to(device), action.to(device)
    with torch.no_grad():
        dist = actor.get_dist(inputs) if hasattr(actor, "get_dist") else None
        if dist is None or isinstance(dist, Delta | TanhDelta):
            chosen = actor(inputs).get("action") if dist is None else dist.mode
            return np.asarray(distance_score(lambda _: chosen)(None, as_numpy(action)))
        base = dist.base_dist if isinstance(dist, torch.distributions.Independent) else dist
        if not isinstance(base, TanhNormal | torch.distributions.Normal):
            log_prob = dist.log_prob(action)
            return as_numpy(log_prob.reshape(len(log_prob), -1).sum(-1))
        mean, log_std = base.loc, base.scale.log()
    score = gaussian_score(lambda _: (mean, log_std), likelihood)
    if isinstance(base, TanhNormal):
        low, high = as_numpy(base.low), as_numpy(base.high)
        score = tanh_gaussian_score(lambda _: (mean, log_std), likelihood, low=low, high=high)
    return np.asarray(score(None, as_numpy(action)))


def as_collected(dataset: Dataset | Mapping[str, Any], *, boundaries: Boundaries = "resets") -> Any:
    """A dataset as the tensordict that a collector would have made of the same steps.

    The keys are `observation`, `action`, the flags, `next` and `("collector", "traj_ids")`.
    """
    past = as_dataset(dataset, boundaries).usable()
    n = len(past)
    terminated = torch.from_numpy(past.terminals.reshape(n, 1))
    done = torch.zeros(n, 1, dtype=torch.bool)
    done[past.ends] = True
    before = {name: torch.zeros(n, 1, dtype=torch.bool) for name in ("done", "terminated", "truncated")}
    after = {"done": done | terminated, "terminated": terminated, "truncated": done & ~terminated}
    obs, next_obs = (
        {key or "observation": torch.from_numpy(np.ascontiguousarray(c)) for key, c in leaves(part).items()}
        for part in (past.observations, past.next_observations)
    )
    following = {**next_obs, "reward": torch.from_numpy(past.rewards.reshape(n, 1)), **after}
    collector = {"traj_ids": torch.from_numpy(past.episode_ids)}
    columns = {**obs, "action": torch.from_numpy(past.actions), **before, "next": following, "collector": collector}
    return TensorDict(columns, batch_size=[n])
