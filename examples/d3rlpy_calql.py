"""Cal-QL in d3rlpy with ARB: pre-trained on past steps, fine-tuned on Pendulum-v1, in about a minute.

    pip install '.[d3rlpy]'
    python examples/d3rlpy_calql.py

Only the lines marked `arb` differ from d3rlpy's own way with `create_fifo_replay_buffer`.
"""

from __future__ import annotations

import argparse

import d3rlpy
import gymnasium as gym
import numpy as np

import arb
from arb.adapters.d3rlpy import RefreshCallback, create_replay_buffer

LIMIT = 2.0


def past_experience(steps: int, seed: int) -> d3rlpy.dataset.MDPDataset:
    """Steps of a controller that knows nothing but (nearly) full torque and errs in every third step."""
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(seed)
    obs, rows = env.reset(seed=seed)[0], []
    for _ in range(steps):
        _, sine, speed = obs
        push = speed if rng.random() < 0.67 else rng.normal() - sine
        action = np.array([np.sign(push) * rng.uniform(0.95, 1.0) * LIMIT], np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, terminated, truncated))
        obs = env.reset()[0] if truncated else next_obs
    rows[-1] = (*rows[-1][:4], True)  # d3rlpy wants the last episode to end
    observations, actions, rewards, terminals, timeouts = (np.array(c) for c in zip(*rows, strict=True))
    return d3rlpy.dataset.MDPDataset(observations, actions, rewards, terminals, timeouts)


def main() -> None:
    """Pre-fill, pre-train, fine-tune."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--past", type=int, default=5000, help="steps of past experience")
    parser.add_argument("--pretrain", type=int, default=500, help="updates before going online")
    parser.add_argument("--steps", type=int, default=2000, help="online steps")
    parser.add_argument("--interval", type=int, default=2, help="online steps per update")
    parser.add_argument("--every", type=int, default=500, help="steps from one refresh to the next")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    d3rlpy.seed(args.seed)
    env = gym.make("Pendulum-v1")
    env.reset(seed=args.seed)
    networks = d3rlpy.models.VectorEncoderFactory([64, 64])
    calql = d3rlpy.algos.CalQLConfig(
        batch_size=64,
        gamma=0.98,
        actor_encoder_factory=networks,
        critic_encoder_factory=networks,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        conservative_weight=1.0,
        action_scaler=d3rlpy.preprocessing.MinMaxActionScaler(-np.full(1, LIMIT), np.full(1, LIMIT)),
    ).create()
    quiet = {"show_progress": False, "logger_adapter": d3rlpy.logging.NoopAdapterFactory()}

    episodes = past_experience(args.past, args.seed).episodes
    buffer = create_replay_buffer(  # arb: instead of d3rlpy.dataset.create_fifo_replay_buffer
        args.past + args.steps, arb.ARB(temperature="auto"), episodes=episodes, seed=args.seed
    )
    refresh = RefreshCallback(buffer, every=args.every)  # arb

    def watch(algo: d3rlpy.algos.CalQL, epoch: int, total_step: int) -> None:
        refresh(algo, epoch, total_step)  # arb: after every step
        if total_step % args.every == 0:
            stats = buffer.stats()  # arb
            last = [episode.compute_return() for episode in buffer.episodes[-4:-1]]
            print(
                f"step {total_step}, online: {stats['online_rows']:.0%} of the buffer, "
                f"{stats['online_share']:.0%} of a batch; return {np.mean(last):.0f}",
                flush=True,
            )

    calql.fit(buffer, n_steps=args.pretrain, n_steps_per_epoch=args.pretrain, **quiet)
    calql.fit_online(
        env,
        buffer=buffer,
        n_steps=args.steps,
        n_steps_per_epoch=args.steps,
        update_interval=args.interval,
        callback=watch,  # arb
        **quiet,
    )


if __name__ == "__main__":
    main()
