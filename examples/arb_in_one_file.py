"""The Adaptive Replay Buffer (ARB) and IQL in one file, to be read from top to bottom.

    pip install numpy torch gymnasium h5py
    python examples/arb_in_one_file.py --quick                                  # a few seconds on Pendulum
    python examples/arb_in_one_file.py                                          # a few minutes on Pendulum
    python examples/arb_in_one_file.py --dataset hopper.hdf5 --env Hopper-v5 --temperature 0.2 --reward-scale 1

Offline-to-online reinforcement learning pre-trains a policy on a dataset and fine-tunes it in an environment. During
fine-tuning every batch mixes old rows with new ones. ARB (Song, Lee and Park, AISTATS 2026) samples a row in proportion
to how likely its trajectory is under the current policy. It needs the policy's log-likelihood and nothing else: no
model, no training of its own, no fixed ratio.

The sections follow the paper: the method (equations 3 and 4), the replay buffer, IQL as the base algorithm, and the
loop of Algorithm 1. Nothing here is imported from the package `arb`, whose buffer does the same at any size.
"""

import argparse
import math
from copy import deepcopy
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
from torch import nn


# ---- Arguments -------------------------------------------------------------------------------------------------------
@dataclass
class Args:
    """The defaults suit Pendulum; the paper's values for D4RL locomotion are in brackets where they differ."""

    env: str = "Pendulum-v1"
    dataset: str = ""  # an .hdf5 file with D4RL's keys; without one, random steps are recorded
    random_steps: int = 20_000  # how many
    quick: bool = False  # only show that everything runs
    seed: int = 0
    # schedule
    offline_updates: int = 20_000  # updates on the dataset before the first online step [1,000,000]
    online_steps: int = 20_000  # steps in the environment, and as many updates [1,000,000]
    refresh_every: int = 1_000  # online steps between two refreshes of the sampling weights
    eval_every: int = 5_000  # [50,000]
    eval_episodes: int = 10  # [100]
    # ARB
    temperature: str = "auto"  # λ of equation 4 [0.2 in the released code]; "auto" holds `effective`, "inf" is uniform
    effective: float = 0.25  # effective sample size as a share of the rows
    clip_low: float = -12.0
    clip_high: float = 7.0
    # IQL
    hidden_dim: int = 256
    batch_size: int = 256
    lr: float = 3e-4
    discount: float = 0.98  # [0.99]
    tau: float = 0.005  # step size of the target critics
    expectile: float = 0.7  # [AntMaze 0.9]
    beta: float = 3.0  # inverse temperature of the advantage weights [AntMaze 10]
    max_weight: float = 100.0
    reward_scale: float = 0.1  # [1]
    reward_shift: float = 0.0  # [AntMaze -1]


# ---- The method: equations 3 and 4 -----------------------------------------------------------------------------------
def log_onpolicyness(log_likelihood, low=-12.0, high=7.0):
    """Equation 3, as a logarithm: the clipped log-likelihood of every row, minus the largest one of all rows."""
    clipped = np.clip(log_likelihood, low, high).astype(np.float64)
    return clipped - clipped.max()


def log_weights(log_onp, trajectory, temperature):
    """Equation 4, as a logarithm: the mean over the steps of a trajectory, divided by λ. All its rows get this weight.

    The mean of logarithms is the logarithm of the geometric mean. In float64 and as logarithms, because at λ = 0.1 two
    weights may differ by a factor of 1e48.
    """
    mean = np.bincount(trajectory, weights=log_onp) / np.maximum(np.bincount(trajectory), 1)
    return mean[trajectory] / temperature


def softmax(log_weight):
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def automatic_temperature(log_onp, trajectory, effective):
    """λ at which the effective sample size 1/Σp² is a given share of the rows.

    This rule is not in the paper. The effective sample size grows with λ, so bisection in log λ finds it.
    """
    extent = np.abs(log_onp).max()
    if extent == 0.0:  # all rows are equally likely, at any λ
        return 1.0
    low, high = math.log(extent / 1e9), math.log(extent * 1e9)
    for _ in range(60):
        middle = (low + high) / 2
        p = softmax(log_weights(log_onp, trajectory, math.exp(middle)))
        low, high = (low, middle) if 1 / np.square(p).sum() > effective * len(p) else (middle, high)
    return math.exp(high)


def sampling_probabilities(log_likelihood, trajectory, args):
    """The probability of every row, and λ."""
    low, high = args.clip_low, args.clip_high
    if args.temperature == "auto":  # the bounds are counted in interquartile ranges from the median
        first, median, third = np.quantile(log_likelihood, (0.25, 0.5, 0.75))
        low, high = median + low * (third - first), median + high * (third - first)
    log_onp = log_onpolicyness(log_likelihood, low, high)
    automatic = args.temperature == "auto"
    temperature = automatic_temperature(log_onp, trajectory, args.effective) if automatic else float(args.temperature)
    return softmax(log_weights(log_onp, trajectory, temperature)), temperature


# ---- Replay buffer ---------------------------------------------------------------------------------------------------
class ReplayBuffer:
    """Rows of experience, offline and online. Each row remembers its trajectory from the moment it is added.

    There is room for all rows of a run, as in the paper: the dataset stays, and nothing is overwritten.
    """

    def __init__(self, capacity, obs_dim, action_dim):
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.action = np.zeros((capacity, action_dim), np.float32)
        self.reward = np.zeros(capacity, np.float32)
        self.next_obs = np.zeros((capacity, obs_dim), np.float32)
        self.mask = np.zeros(capacity, np.float32)  # 0 where the task ended; a time limit is no end
        self.trajectory = np.zeros(capacity, np.int64)
        self.online = np.zeros(capacity, bool)
        self.size = self.trajectories = 0
        self.cumulative = None  # of the sampling probabilities

    def add(self, obs, action, reward, next_obs, terminated, truncated):
        """Store an online step. The step that ends an episode is the last one of its trajectory."""
        i = self.size
        self.obs[i], self.action[i], self.reward[i], self.next_obs[i] = obs, action, reward, next_obs
        self.mask[i], self.trajectory[i], self.online[i] = not terminated, self.trajectories, True
        self.size += 1
        self.trajectories += bool(terminated or truncated)

    def load_dataset(self, data):
        """Store a dataset with D4RL's keys. Every terminal or timeout ends a trajectory, as in the paper's release."""
        n, terminals = len(data["rewards"]), data["terminals"].astype(bool)
        timeouts = data.get("timeouts", np.zeros(n)).astype(bool)
        next_obs, known = data.get("next_observations"), np.ones(n, bool)
        if next_obs is None:  # it is the next row's; where an episode was cut off, it was not recorded
            next_obs, known = np.roll(data["observations"], -1, axis=0), terminals | ~timeouts
            known[-1] = terminals[-1]
        trajectory = np.append(0, np.cumsum(terminals | timeouts)[:-1])
        self.size, self.trajectories = known.sum(), trajectory[-1] + 1
        columns = (data["observations"], data["actions"], data["rewards"], next_obs, ~terminals, trajectory)
        names = ("obs", "action", "reward", "next_obs", "mask", "trajectory")
        for name, column in zip(names, columns, strict=True):
            getattr(self, name)[: self.size] = column[known]

    def refresh(self, log_likelihood, args):
        """Weigh every row anew by the likelihood of its action under the current policy."""
        chunks = [slice(i, min(i + 10_000, self.size)) for i in range(0, self.size, 10_000)]
        scores = np.concatenate([log_likelihood(self.obs[rows], self.action[rows]) for rows in chunks])
        p, temperature = sampling_probabilities(scores, self.trajectory[: self.size], args)
        self.cumulative, online = np.cumsum(p), self.online[: self.size]
        return {"temperature": temperature, "online_rows": online.mean(), "online_share": p[online].sum()}

    def sample(self, rng, batch_size):
        """Sample a batch with replacement: uniformly before the first refresh, by equation 4 after it."""
        if self.cumulative is None:
            rows = rng.integers(self.size, size=batch_size)
        else:
            rows = np.searchsorted(self.cumulative, rng.random(batch_size) * self.cumulative[-1], side="right")
        columns = (self.obs, self.action, self.reward, self.next_obs, self.mask)
        return [torch.from_numpy(column[rows]) for column in columns]


# ---- Data ------------------------------------------------------------------------------------------------------------
def read_dataset(path):
    """Columns of a file in D4RL's layout."""
    import h5py

    with h5py.File(path) as file:
        return {name: column[()] for name, column in file.items() if isinstance(column, h5py.Dataset)}


def record_dataset(env, steps, seed):
    """Random steps of the environment, under D4RL's keys."""
    env.action_space.seed(seed)
    rows, (obs, _) = [], env.reset(seed=seed)
    for _ in range(steps):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, next_obs, terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


# ---- IQL (Kostrikov et al. 2022) -------------------------------------------------------------------------------------
def mlp(inputs, outputs, hidden):
    first, second, last = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


class IQL:
    """Implicit Q-learning: no loss evaluates an action that is not in the data.

    The paper's release also lets the policy's learning rate fall to 0 over pre-training, along half a cosine.
    """

    def __init__(self, obs_dim, action_dim, args):
        self.args = args
        self.actor, self.log_std = mlp(obs_dim, action_dim, args.hidden_dim), nn.Parameter(torch.zeros(action_dim))
        self.value = mlp(obs_dim, 1, args.hidden_dim)
        self.critics = nn.ModuleList(mlp(obs_dim + action_dim, 1, args.hidden_dim) for _ in range(2))
        self.targets = deepcopy(self.critics).requires_grad_(False)
        learned = nn.ModuleList([self.actor, self.value, self.critics]).parameters()
        self.adam = torch.optim.Adam([*learned, self.log_std], args.lr)

    def policy(self, obs):
        """A Gaussian with a bounded mean and one standard deviation per action dimension for all states."""
        return torch.distributions.Normal(torch.tanh(self.actor(obs)), self.log_std.clamp(-20, 2).exp())

    @torch.no_grad()
    def act(self, obs, *, explore):
        """An action in [-1, 1]: sampled to explore, the mean for evaluation."""
        policy = self.policy(torch.as_tensor(obs, dtype=torch.float32))
        return (policy.sample() if explore else policy.mean).clamp(-1, 1).numpy()

    @torch.no_grad()
    def log_likelihood(self, obs, action):
        """What ARB asks for: the standard normal log-density of the z-score, averaged over action dimensions.

        The paper's appendix divides by σ but leaves log σ out. Here it is the same constant for all rows anyway.
        """
        policy = self.policy(torch.from_numpy(obs))
        z = (torch.from_numpy(action) - policy.mean) / policy.stddev
        return (-0.5 * z**2 - 0.5 * math.log(2 * math.pi)).mean(-1).numpy()

    def update(self, obs, action, reward, next_obs, mask):
        """One gradient step of V, Q and the policy. Their losses share no parameter, so one sum and one Adam do."""
        args, both = self.args, torch.cat([obs, action], -1)
        with torch.no_grad():
            min_q = torch.min(self.targets[0](both), self.targets[1](both)).squeeze(-1)
            target = reward + args.discount * mask * self.value(next_obs).squeeze(-1)
        # V(s) becomes an upper expectile of Q(s, a) over the actions in the data.
        advantage = min_q - self.value(obs).squeeze(-1)
        value_loss = (torch.where(advantage < 0, 1 - args.expectile, args.expectile) * advantage**2).mean()
        # Both critics: squared error against r + γ V(s').
        critic_loss = sum(0.5 * ((critic(both).squeeze(-1) - target) ** 2).mean() for critic in self.critics)
        # The policy: behaviour cloning, weighted by exp(β·advantage).
        weight = torch.exp(args.beta * advantage.detach()).clamp(max=args.max_weight)
        actor_loss = -(weight * self.policy(obs).log_prob(action).sum(-1)).mean()

        self.adam.zero_grad()
        (value_loss + critic_loss + actor_loss).backward()
        self.adam.step()
        with torch.no_grad():
            for p, slow in zip(self.critics.parameters(), self.targets.parameters(), strict=True):
                slow.lerp_(p, args.tau)


# ---- Algorithm 1 -----------------------------------------------------------------------------------------------------
def evaluate(agent, env, args):
    """Mean return of the policy's mean actions; the same initial states every time."""
    total = 0.0
    for episode in range(args.eval_episodes):
        (obs, _), done = env.reset(seed=args.seed + episode), False
        while not done:
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs, explore=False))
            total, done = total + float(reward), terminated or truncated
    return total / args.eval_episodes


def make_env(name, mean=0.0, std=1.0):
    """An environment with actions in [-1, 1] and normalised observations."""
    env = gym.wrappers.RescaleAction(gym.make(name), np.float32(-1), np.float32(1))
    space = gym.spaces.Box(-np.inf, np.inf, env.observation_space.shape, np.float32)
    return gym.wrappers.TransformObservation(env, lambda obs: ((obs - mean) / std).astype(np.float32), space)


def main(args):
    """Pre-train offline, then fine-tune online with ARB; returns the agent and its buffer."""
    if args.quick:
        args.offline_updates, args.online_steps, args.refresh_every, args.hidden_dim = 400, 400, 100, 32
        args.random_steps, args.eval_every, args.eval_episodes = 1_000, 400, 1
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # small networks: one thread is fastest
    rng = np.random.default_rng(args.seed)

    recorded = not args.dataset
    data = record_dataset(make_env(args.env), args.random_steps, args.seed) if recorded else read_dataset(args.dataset)
    mean, std = data["observations"].mean(0), data["observations"].std(0) + 1e-3
    for name in {"observations", "next_observations"} & data.keys():
        data[name] = (data[name] - mean) / std
    data["rewards"] = data["rewards"] * args.reward_scale + args.reward_shift
    env, eval_env = make_env(args.env, mean, std), make_env(args.env, mean, std)

    (obs_dim,), (action_dim,) = env.observation_space.shape, env.action_space.shape
    agent = IQL(obs_dim, action_dim, args)
    buffer = ReplayBuffer(len(data["rewards"]) + args.online_steps, obs_dim, action_dim)
    buffer.load_dataset(data)

    # Phase 1: offline pre-training on uniform batches.
    for update in range(1, args.offline_updates + 1):
        agent.update(*buffer.sample(rng, args.batch_size))
        if update % args.eval_every == 0:
            print(f"offline {update:8d}   return {evaluate(agent, eval_env, args):9.1f}", flush=True)

    # Phase 2: online fine-tuning. Collect, refresh, update.
    obs, _ = env.reset(seed=args.seed)
    for step in range(1, args.online_steps + 1):
        action = agent.act(obs, explore=True)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        reward = reward * args.reward_scale + args.reward_shift
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        obs = env.reset()[0] if terminated or truncated else next_obs

        if step % args.refresh_every == 0:
            replay = buffer.refresh(agent.log_likelihood, args)
            for _ in range(args.refresh_every):
                agent.update(*buffer.sample(rng, args.batch_size))
        if step % args.eval_every == 0:
            score = evaluate(agent, eval_env, args)
            shares = f"online: {replay['online_rows']:.0%} of the rows, {replay['online_share']:.0%} of a batch"
            print(f"online  {step:8d}   return {score:9.1f}   λ {replay['temperature']:.3g}   {shares}", flush=True)
    return agent, buffer


def parse_args():
    """Every field of `Args` as an option of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Args):
        kind = {"action": "store_true"} if field.type is bool else {"type": field.type, "default": field.default}
        parser.add_argument(f"--{field.name.replace('_', '-')}", **kind)
    return Args(**vars(parser.parse_args()))


if __name__ == "__main__":
    main(parse_args())
