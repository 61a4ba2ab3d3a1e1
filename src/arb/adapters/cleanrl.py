"""A replay buffer in the shape that CleanRL's scripts and their many descendants use, without importing any host.

rb = ReplayBuffer(args.buffer_size, envs.single_observation_space, envs.single_action_space, device,
                  n_envs=args.num_envs, handle_timeout_termination=False, sampler=ARB("auto"), autoreset=envs)
rb.load(dataset)
rb.add(obs, real_next_obs, actions, rewards, terminations, infos, truncations=truncations)
rb.refresh(actor)
data = rb.sample(args.batch_size)
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arb.adapters import seed_sequence
from arb.errors import DataError
from arb.replay.buffer import Loaded, ended_in, with_final_obs
from arb.replay.buffer import ReplayBuffer as OurBuffer
from arb.replay.dataset import Boundaries, Dataset, Obs, map_leaves
from arb.replay.samplers import Sampler
from arb.replay.scores import Likelihood, categorical_score, distance_score, tanh_gaussian_score

Infos = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""What came with a step: one dict for all environments (Gymnasium), or one each (older scripts)."""


class Samples(NamedTuple):
    """A batch with the field names of those scripts, as torch tensors, or NumPy arrays without a device."""

    observations: Any
    actions: Any
    next_observations: Any
    dones: Any
    """1 where the task ended, of shape (n, 1)."""
    rewards: Any
    """Of shape (n, 1)."""
    discounts: Any
    """gamma, to the power of the steps over which `rewards` runs; of shape (n, 1)."""


class ReplayBuffer:
    """`arb.ReplayBuffer` behind the calls of CleanRL's scripts; `buffer` is the one within, with all it can do.

    The arguments up to `handle_timeout_termination` are those of the scripts. Neither `observation_space` nor
    `optimize_memory_usage` is used: what is stored follows the first observations, and none is ever stored twice. An
    `action_space` without bounds is discrete. `device` is any name torch knows, or "auto"; None gives NumPy arrays.
    With `handle_timeout_termination`, a `done` that its info calls a time limit is not the end of the task. The others
    are those of `arb.ReplayBuffer`; without a `seed` it comes from NumPy's global stream, which the scripts seed.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,  # noqa: ARG002
        action_space: Any,
        device: Any = None,
        n_envs: int = 1,
        optimize_memory_usage: bool = False,  # noqa: ARG002
        handle_timeout_termination: bool = True,
        *,
        sampler: Sampler | None = None,
        seed: int | None = None,
        boundaries: Boundaries = "resets",
        autoreset: Any = None,
    ):
        self._bounds = (action_space.low, action_space.high) if hasattr(action_space, "low") else None
        self.buffer = OurBuffer(
            buffer_size,
            sampler,
            seed=seed_sequence(seed),
            boundaries=boundaries,
            action_bounds=self._bounds,
            autoreset=autoreset,
        )
        self.n_envs, self.handle_timeout_termination = n_envs, handle_timeout_termination
        self._torch: Any = None
        self.device: Any = None
        if device is not None:
            import torch

            best = "cuda" if torch.cuda.is_available() else "cpu"
            self._torch, self.device = torch, torch.device(best if device == "auto" else device)

    def __len__(self) -> int:
        return len(self.buffer)

    def load_dataset(self, dataset: Dataset | Mapping[str, Any]) -> Loaded:
        """Append offline data: a `Dataset`, or a dict of arrays with D4RL's keys."""
        return self.buffer.load_dataset(dataset)

    def add(
        self,
        obs: Obs,
        next_obs: Obs,
        actions: ArrayLike,
        rewards: ArrayLike,
        dones: ArrayLike,
        infos: Infos,
        *,
        truncations: ArrayLike | None = None,
        valid: ArrayLike | None = None,
    ) -> None:
        """One step of every environment, with actions on the environment's scale.

        `dones` says whether each task ended (`terminations`), `truncations` whether each episode was cut off; only
        same-step autoreset says the latter in `infos`. Where `infos` name a final observation, it replaces the one in
        `next_obs`. Rows that are not `valid` are passed over.
        """
        ended = np.asarray(dones, bool).reshape(-1)
        cut = np.zeros(len(ended), bool) if truncations is None else np.asarray(truncations, bool)
        if isinstance(infos, Mapping):
            if truncations is None and self.buffer.autoreset in (None, "next_step"):
                raise DataError(
                    "rb.add cannot tell which episodes were cut off by a time limit: make the buffer with ReplayBuffer("
                    "..., autoreset=envs), and call rb.add(..., truncations=truncations)"
                )
            name, final = ended_in(infos)
            cut = cut if truncations is not None or name is None else final
            next_obs = with_final_obs(next_obs, infos)
        else:
            if truncations is None:
                cut = np.array([info.get("TimeLimit.truncated", False) for info in infos], bool)
            if self.handle_timeout_termination:
                ended = ended & ~cut
        if len(ended) == 1 and valid is None and isinstance(obs, np.ndarray) and isinstance(next_obs, np.ndarray):
            action, reward = np.asarray(actions)[0], np.asarray(rewards)[0]
            self.buffer.add(obs[0], action, reward, next_obs[0], ended.item(), cut.item() and not ended.item())
        else:
            self.buffer.add_batch(obs, actions, rewards, next_obs, ended, cut & ~ended, valid=valid)

    def refresh(self, actor: Callable[[Any], Any], likelihood: Likelihood = "standard") -> None:
        """Weigh the rows anew under the current policy.

        `actor(obs)` gives mean and log standard deviation before tanh, or logits where actions are discrete, or, as
        that of TD3 and DDPG, the action itself. For any other policy use `rb.buffer.refresh(score)`.
        """

        def score(obs: Any, action: Any) -> Any:
            with self._torch.no_grad() if self._torch else nullcontext():
                answer = actor(self._out(obs))
            if self._bounds is None:
                return categorical_score(lambda _: answer, likelihood)(obs, action)
            low, high = (np.asarray(bound, np.float64) for bound in self._bounds)
            if type(answer) in (tuple, list):
                return tanh_gaussian_score(lambda _: answer, likelihood, low=low, high=high)(obs, action)
            return distance_score(lambda _: answer, scale=(high - low) / 2.0)(obs, action)

        self.buffer.refresh(score)

    def sample(self, batch_size: int, *, n_step: int = 1) -> Samples:
        """A batch, drawn by the strategy.

        With `n_step`, rewards are sums over that many steps with the discount `rb.buffer.gamma`, and the target is
        `rewards + (1 - dones) * discounts * value(next_observations)`.
        """
        with self.buffer.index.lock:  # no other thread may overwrite the rows between the three
            rows = self.buffer.sample_indices(batch_size)
            batch = self.buffer.gather(rows, n_step=n_step)
            if self.buffer.sampler.trainable:
                self.buffer.sampler.train(rows, self.buffer.gather, self.buffer.rng)
        over = batch.mask == 0.0
        discounts = self.buffer.gamma * np.where(over, 1.0, batch.mask).astype(np.float32)[:, None]
        action, done = batch.action.reshape(batch_size, -1), over.astype(np.float32)[:, None]
        return Samples(*self._out((batch.obs, action, batch.next_obs, done, batch.reward[:, None], discounts)))

    def __repr__(self) -> str:
        return f"ReplayBuffer({self.buffer.index.summary})"

    def stats(self) -> dict[str, float]:
        """Metrics of the sampling distribution; docs/reference/metrics.md explains them."""
        return self.buffer.stats()

    def _out(self, columns: Any) -> Any:
        if self._torch is None:
            return columns
        return map_leaves(lambda values: self._torch.as_tensor(values, device=self.device), columns)
