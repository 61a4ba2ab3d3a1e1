"""ARB inside d3rlpy: its replay buffer with a strategy of ours, and the callback that refreshes it.

    buffer = create_replay_buffer(100_000, arb.ARB(temperature="auto"), episodes=dataset.episodes, seed=0)
    calql.fit(buffer, n_steps=10_000)
    calql.fit_online(env, buffer=buffer, callback=RefreshCallback(buffer))

Episodes, transition pickers and mini-batches stay the host's. Only which (episode, step) comes next is ours.
"""

import json
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from arb.errors import DataError
from arb.files import flattened
from arb.replay import scores
from arb.replay.dataset import Array, Ints
from arb.replay.index import ReplayIndex
from arb.replay.samplers import Sampler, State
from arb.replay.scores import CHUNK, Likelihood, Score

try:
    import d3rlpy
    import h5py
    import torch
    from d3rlpy.dataset import FrameStackTransitionPicker, TransitionMiniBatch
    from d3rlpy.dataset.utils import stack_observations
    from d3rlpy.models.torch.policies import CategoricalPolicy, DeterministicPolicy, NormalPolicy
    from d3rlpy.torch_utility import convert_to_torch_recursively
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"arb.adapters.d3rlpy needs {missing.name}: pip install 'arb-rl[d3rlpy]'", name=missing.name
    ) from None

GAUSSIAN = (d3rlpy.algos.IQL, d3rlpy.algos.AWAC, d3rlpy.algos.CRR)
"""Algorithms whose policy is a Gaussian around the squashed mean; all others squash the sample."""


class Ring(d3rlpy.dataset.BufferProtocol):
    """The last `limit` transitions as d3rlpy's buffers hold them: pairs of an episode and a step."""

    def __init__(self, limit: int, sampler: Sampler | None = None, seed: int | None = None):
        self.index = ReplayIndex(limit, sampler, seed)
        self._step = np.zeros(limit, np.int64)
        self._episode: dict[int, Any] = {}  # by episode id
        self._writing: Any = None

    def append(self, episode: Any, index: int) -> None:
        """One more step of the episode that is being written: an online row."""
        if episode is not self._writing:
            self.close()
        self._writing = episode
        self._enter(*self.index.append([0]), episode, index)

    def append_whole(self, episode: Any) -> None:
        """A complete episode of past experience: offline rows."""
        steps = episode.transition_count
        if steps:
            self._enter(*self.index.extend([steps]), episode, np.arange(steps))

    def close(self) -> None:
        self._writing = None
        self.index.close(0)

    def _enter(self, rows: Ints, ids: Any, episode: Any, steps: Any) -> None:
        self._step[rows] = steps
        self._episode[int(ids[0])] = episode  # an id is used again when its episode has vanished

    @property
    def episodes(self) -> list[Any]:
        ids = dict.fromkeys(self.index.episode_ids[self._in_order()].tolist())
        return list({id(self._episode[number]): self._episode[number] for number in ids}.values())

    @property
    def transition_count(self) -> int:
        return len(self.index)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self._episode[int(self.index.episode_ids[row])], int(self._step[row])

    def columns(self, rows: Ints | slice) -> tuple[Any, Array]:
        ids, steps = self.index.episode_ids[rows], self._step[rows]
        cuts = np.flatnonzero(np.diff(ids)) + 1
        owners = [self._episode[number] for number in ids[np.append(0, cuts)].tolist()]
        pieces = list(zip(owners, np.split(steps, cuts), strict=True))
        actions = np.concatenate([episode.actions[step] for episode, step in pieces])
        if isinstance(owners[0].observations, np.ndarray):
            return np.concatenate([episode.observations[step] for episode, step in pieces]), actions
        parts = range(len(owners[0].observations))
        return [np.concatenate([episode.observations[i][step] for episode, step in pieces]) for i in parts], actions

    def restore(self, header: dict[str, Any], parts: dict[str, State]) -> None:
        """Take over the weights of a saved ring that held the same transitions."""
        held = [self[row] for row in self._in_order()]
        self.index.restore(header, parts)
        if len(held) != len(self.index):
            raise DataError(f"the file has weights of {len(self.index)} transitions, but {len(held)} were loaded")
        order = self._in_order()
        self._step[order] = [step for _, step in held]
        ids = self.index.episode_ids[order].tolist()
        self._episode = {number: episode for number, (episode, _) in zip(ids, held, strict=True)}
        self.close()

    def _in_order(self) -> Ints:
        return np.arange(self.index.oldest, self.index.num_added) % self.index.capacity


class ReplayBuffer(d3rlpy.dataset.ReplayBuffer):
    """d3rlpy's replay buffer over a `Ring`; `create_replay_buffer` makes both.

    Episodes given to the constructor or to `append_episode` are past experience, steps given to `append` are new.
    `dump` writes the weights into the host's file, beside the episodes, and `load` continues with them.
    """

    _buffer: Ring

    def __init__(self, buffer: Ring, *args: Any, **kwargs: Any):
        if not isinstance(buffer, Ring):
            raise DataError(f"this buffer needs arb.adapters.d3rlpy.Ring to hold its rows, not {type(buffer).__name__}")
        super().__init__(buffer, *args, **kwargs)

    @property
    def index(self) -> ReplayIndex:
        return self._buffer.index

    def append_episode(self, episode: Any) -> None:
        self._buffer.append_whole(episode)

    def clip_episode(self, terminated: bool) -> None:
        super().clip_episode(terminated)
        self._buffer.close()

    def sample_transition(self) -> Any:
        return self._sample(1)[0]

    def sample_transition_batch(self, batch_size: int) -> Any:
        return TransitionMiniBatch.from_transitions(self._sample(batch_size))

    def _sample(self, n: int) -> list[Any]:
        rows = self.index.sample_indices(n)
        self.index.train(rows, self._buffer.columns)
        return self._picked(rows)

    def _picked(self, rows: Ints) -> list[Any]:
        return [self._transition_picker(*self._buffer[row]) for row in rows.tolist()]

    def refresh(
        self, algo: Any, *, likelihood: Likelihood = "standard", score: Score | None = None, rows_per_call: int = CHUNK
    ) -> None:
        """Weigh the transitions anew, by what the policy of `algo` would do now, or by a `score(obs, action)`."""

        def score_rows(rows: Ints | slice) -> Array:
            obs, action = self._buffer.columns(rows)
            if isinstance(self._transition_picker, FrameStackTransitionPicker):
                obs = stack_observations([t.observation for t in self._picked(np.arange(len(self._buffer))[rows])])
            return score(obs, action) if score else policy_log_likelihood(algo, obs, action, likelihood)

        self.index.refresh(score_rows, rows_per_call=rows_per_call)

    def __repr__(self) -> str:
        return f"ReplayBuffer({self.index.summary})"

    def stats(self) -> dict[str, float]:
        """Metrics of the sampling distribution; docs/reference/metrics.md explains them."""
        return self.index.stats()

    def dump(self, f: BinaryIO) -> None:
        super().dump(f)
        header, parts = self.index.state()
        with h5py.File(f, "r+") as file:
            group = file.create_group("arb")
            group.attrs["header"] = json.dumps(header)
            for name, array in flattened(parts).items():
                group.create_dataset(name, data=array)

    @classmethod
    def load(cls, f: BinaryIO, buffer: Ring, *args: Any, **kwargs: Any) -> "ReplayBuffer":
        """Read what `dump` wrote, here or in the host's own class; the latter has no weights, and all of it is past."""
        loaded: ReplayBuffer = super().load(f, buffer, *args, **kwargs)
        with h5py.File(f, "r") as file:
            if "arb" in file:
                parts = {part: {key: array[()] for key, array in group.items()} for part, group in file["arb"].items()}
                buffer.restore(json.loads(file["arb"].attrs["header"]), parts)
        return loaded


def create_replay_buffer(
    limit: int,
    sampler: Sampler | None = None,
    *,
    episodes: Sequence[Any] | None = None,
    env: Any = None,
    seed: int | None = None,
    **kwargs: Any,
) -> ReplayBuffer:
    """A replay buffer of `limit` transitions, as `d3rlpy.dataset.create_fifo_replay_buffer` makes it, with a strategy.

    `episodes` are past experience; without any, `env` has the shapes of observations and actions. Further arguments are
    those of the host's `ReplayBuffer`, such as a `transition_picker`.
    """
    return ReplayBuffer(Ring(limit, sampler, seed), episodes=episodes, env=env, **kwargs)


class RefreshCallback:
    """Refreshes a buffer whenever `every` transitions were added: `fit_online(env, buffer, callback=...)`.

    Further options are those of `refresh`: `likelihood`, `score`.
    """

    def __init__(self, buffer: ReplayBuffer, *, every: int = 1000, **options: Any):
        self.buffer, self.every, self.options = buffer, every, options

    def __call__(self, algo: Any, epoch: int, total_step: int) -> None:  # noqa: ARG002 - the host's signature
        if self.buffer.index.is_due(self.every):
            self.buffer.refresh(algo, **self.options)


def policy_log_likelihood(algo: Any, obs: Any, action: Array, likelihood: Likelihood = "standard") -> Array:
    """How likely stored actions are under the policy of an algorithm, after its scalers.

    A deterministic policy, as that of TD3 and DDPG, has `arb.distance_score`.
    """
    policy = getattr(getattr(algo.impl, "modules", None), "policy", None)
    if not isinstance(policy, NormalPolicy | CategoricalPolicy | DeterministicPolicy):
        raise DataError(
            f"{type(algo).__name__} has no policy that could tell how likely stored actions are, or is not built yet: "
            "give refresh or RefreshCallback a score=, or take a strategy that does not ask (arb.Uniform, arb.Mixed)"
        )
    x = convert_to_torch_recursively(obs, algo.impl.device)
    if algo.observation_scaler:
        x = algo.observation_scaler.transform(x)
    algo.impl.modules.set_eval()
    with torch.no_grad():
        out = policy(x)
    if isinstance(policy, CategoricalPolicy):
        score, action = scores.categorical_score(lambda _: out.logits, likelihood), action.reshape(len(action))
    elif isinstance(policy, DeterministicPolicy):
        score = scores.distance_score(lambda _: out.squashed_mu)
    elif isinstance(algo, GAUSSIAN):
        score = scores.gaussian_score(lambda _: (out.squashed_mu, out.logstd), likelihood)
    else:
        score = scores.tanh_gaussian_score(lambda _: (out.mu, out.logstd), likelihood)
    scaled = algo.action_scaler and not isinstance(policy, CategoricalPolicy)
    return np.asarray(score(None, algo.action_scaler.transform_numpy(action) if scaled else action))
