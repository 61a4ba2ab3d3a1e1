"""SAC in TorchRL with ARB: past steps of a clumsy controller, then fine-tuning on Pendulum-v1, in about a minute.

    pip install '.[torchrl]' gymnasium
    python examples/torchrl_sac.py

Only the lines marked `arb` differ from a loop with TorchRL's own `RandomSampler`.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import ExplorationType, GymEnv, RewardSum, TransformedEnv, set_exploration_type
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

import arb
from arb.adapters.torchrl import RefreshHook, StrategySampler, as_collected

LIMIT = 2.0


def past_experience(steps: int, seed: int) -> dict[str, np.ndarray]:
    """Steps of a controller that knows nothing but (nearly) full torque and errs often, as D4RL would store them."""
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(seed)
    obs, columns = env.reset(seed=seed)[0], []
    for _ in range(steps):
        _, sine, speed = obs
        push = speed if rng.random() < 0.67 else rng.normal() - sine
        action = np.array([np.sign(push) * rng.uniform(0.95, 1.0) * LIMIT], np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        columns.append((obs, action, reward, next_obs, terminated, truncated))
        obs = env.reset()[0] if truncated else next_obs
    keys = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    return {key: np.array(column) for key, column in zip(keys, zip(*columns, strict=True), strict=True)}


def make_actor() -> ProbabilisticActor:
    """A squashed Gaussian over torques."""
    network = nn.Sequential(MLP(in_features=3, out_features=2, num_cells=[64, 64]), NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": -LIMIT, "high": LIMIT},
    )


def make_update(actor: ProbabilisticActor, buffer: TensorDictReplayBuffer):
    """One update of SAC, as a function without arguments."""
    critic = ValueOperator(MLP(in_features=4, out_features=1, num_cells=[64, 64]), in_keys=["observation", "action"])
    loss = SACLoss(actor, critic, action_spec=GymEnv("Pendulum-v1").action_spec, alpha_init=0.2)
    loss.make_value_estimator(gamma=0.98)
    target = SoftUpdate(loss, eps=0.99)
    adam = torch.optim.Adam(loss.parameters(), 1e-3)

    def update() -> None:
        losses = loss(buffer.sample())
        total = losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]
        adam.zero_grad()
        total.backward()
        adam.step()
        target.step()

    return update


def main() -> None:
    """Pre-fill, pre-train, fine-tune."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--past", type=int, default=5000, help="steps of past experience")
    parser.add_argument("--pretrain", type=int, default=1000, help="updates before going online")
    parser.add_argument("--steps", type=int, default=4000, help="online steps, one update each")
    parser.add_argument("--every", type=int, default=500, help="steps from one refresh to the next")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    actor = make_actor()
    sampler = StrategySampler(arb.ARB(temperature="auto"), seed=args.seed)  # arb: instead of RandomSampler()
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(args.past + args.steps), sampler=sampler, batch_size=128)
    with sampler.offline():  # arb: these rows are past experience
        buffer.extend(as_collected(past_experience(args.past, args.seed)))
    refresh = RefreshHook(sampler, actor, buffer, every=args.every)  # arb

    update = make_update(actor, buffer)
    for _ in range(args.pretrain):
        update()
    env = TransformedEnv(GymEnv("Pendulum-v1"), RewardSum())
    env.set_seed(args.seed)
    collector = Collector(
        env, actor, frames_per_batch=args.every, total_frames=args.steps, auto_register_policy_transforms=False
    )
    for data in collector:
        returns = data["next", "episode_reward"][data["next", "done"]].mean().item()
        buffer.extend(data.exclude("episode_reward", ("next", "episode_reward")))
        refresh()  # arb: before the updates
        for _ in range(len(data)):
            update()
        stats = sampler.stats()  # arb
        print(
            f"online: {stats['online_rows']:.0%} of the buffer, {stats['online_share']:.0%} of a batch; "
            f"return {returns:.0f}",
            flush=True,
        )
    collector.shutdown()
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        print(f"return of the final policy: {env.rollout(200, actor)['next', 'reward'].sum().item():.0f}")


if __name__ == "__main__":
    main()
