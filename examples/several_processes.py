"""Several processes: actors step environments, one learner adds their steps, refreshes and samples.

python examples/several_processes.py

Every actor has a pipe of its own, so one that is killed in the middle of a message disturbs nobody else: the learner
ends its episode and starts another process in its place.
"""

import multiprocessing
from multiprocessing.connection import Connection, wait
from typing import Any

import gymnasium as gym
import numpy as np

import arb


def act(pipe: Connection, env_id: str, seed: int, policy: Any) -> None:
    """Step an environment with the newest policy, and send every step to the learner."""
    env, rng = gym.make(env_id), np.random.default_rng(seed)
    space: Any = env.action_space
    obs, _ = env.reset(seed=seed)
    while True:
        while pipe.poll():
            policy = pipe.recv()
        action = np.clip(policy @ obs + rng.normal(size=space.shape), space.low, space.high).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        pipe.send((obs, action, reward, next_obs, terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else next_obs


class Actors:
    """The processes, by the ends of their pipes."""

    def __init__(self, env_id: str, n: int, policy: Any):
        self.env_id, self.policy, self.started = env_id, policy, 0
        self.team: dict[Any, tuple[int, Any]] = {}
        for number in range(n):
            self.start(number)

    def start(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self.env_id, self.started, self.policy)
        process = context.Process(target=act, args=arguments, daemon=True)  # ends with the learner
        process.start()
        theirs.close()  # the process has its own; the pipe then breaks when it dies
        self.team[ours] = (number, process)
        self.started += 1

    def collect(self, buffer: arb.ReplayBuffer) -> None:
        """Add the steps that are there; wait for at least one."""
        for pipe in wait(list(self.team)):
            number, process = self.team[pipe]
            try:
                buffer.add(*pipe.recv(), env=number)
            except (EOFError, OSError):
                buffer.end_episode(env=number)
                process.join()
                del self.team[pipe]
                self.start(number)

    def send(self, policy: Any) -> None:
        self.policy = policy
        for pipe in self.team:
            try:
                pipe.send(policy)
            except OSError:  # it has died, which `collect` will notice
                continue

    def stop(self) -> None:
        for _, process in self.team.values():
            process.kill()
            process.join()


def learn(actors: Actors, buffer: arb.ReplayBuffer, steps: int) -> None:
    """Collect until the buffer holds so many steps, and update the policy every 500."""
    while len(buffer) < steps:
        actors.collect(buffer)
        if buffer.index.is_due(500):
            policy = actors.policy
            buffer.refresh(arb.gaussian_score(lambda obs, policy=policy: (obs @ policy.T, np.zeros(len(policy)))))
            batch = buffer.sample(256)
            actors.send(np.linalg.lstsq(batch.obs, batch.action, rcond=None)[0].T)  # your algorithm goes here


if __name__ == "__main__":
    buffer = arb.ReplayBuffer(capacity=10_000, sampler=arb.ARB("auto"), seed=0)
    actors = Actors("Pendulum-v1", 2, np.zeros((1, 3)))
    learn(actors, buffer, 3000)
    actors.stop()
    print(f"{len(buffer)} steps in {len(buffer.episodes())} episodes of {actors.started} processes")
