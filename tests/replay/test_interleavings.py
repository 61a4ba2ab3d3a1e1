"""Any order of load, add, remove, refresh, sample, save and restore keeps what the buffer promises."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arb import ARB, Mixed, Prioritized, ReplayBuffer, Uniform
from tests.replay.model import Model, Step

GAMMA, TEMPERATURE, CLIP = 0.9, 0.7, (-6.0, 1.0)

SAMPLERS = {
    "arb": lambda: ARB(TEMPERATURE, clip=CLIP),
    "naive": Uniform,
    "parallel": Mixed,
    "prioritized": Prioritized,
}


def score(obs):
    return np.sin(np.asarray(obs, np.float64) * 12.9898) * 4.0 - 2.0


class Interleavings(RuleBasedStateMachine):
    """The buffer against a list of steps. Observations are unique numbers, so a batch tells which steps it holds."""

    @initialize(capacity=st.integers(1, 40), name=st.sampled_from(sorted(SAMPLERS)), seed=st.integers(0, 3))
    def begin(self, capacity, name, seed):
        self.name, self.seed = name, seed
        self.buffer = self.new(capacity)
        self.model = Model(capacity, GAMMA)
        self.clock = 0.0
        self.open: dict[int, tuple[int, float]] = {}
        self.untagged: set[float] = set()
        self.origins: dict[float, str] = {}

    def new(self, capacity):
        warnings.filterwarnings("ignore", "the buffer is full|more than half of the scores")
        return ReplayBuffer(capacity, SAMPLERS[self.name](), gamma=GAMMA, seed=self.seed)

    def tick(self, gap=1.0):
        self.clock += gap
        return self.clock

    @rule(
        lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
        ends=st.integers(0, 31),
        rewards=st.integers(0, 99),
        origin=st.sampled_from(["offline", "demos"]),
    )
    def load(self, lengths, ends, rewards, origin):
        steps = []
        for i, length in enumerate(lengths):
            name, here = self.model.begin(), self.tick(10.0)
            for t in range(length):
                there = self.tick()
                last = t == length - 1
                steps.append((Step(here, there, (rewards + t) % 7, last and bool(ends >> i & 1), False, name), last))
                here = there
            self.model.closed.add(name)
        gone = self.buffer.index.num_added + len(steps) - self.buffer.capacity
        if len(steps) > self.buffer.capacity or (self.buffer.index.spans(online=False)[0] < gone).any():
            return
        kept = [step for step, _ in steps]
        columns = {
            "observations": np.array([[s.obs] for s in kept]),
            "next_observations": np.array([[s.next_obs] for s in kept]),
            "actions": np.array([[s.obs / 2] for s in kept]),
            "rewards": np.array([s.reward for s in kept]),
            "terminals": np.array([s.terminated for s in kept]),
            "timeouts": np.array([last and not s.terminated for s, last in steps]),
            "tag": np.array([3.0 * s.obs for s in kept]),
        }
        self.buffer.load_dataset(columns, origin=origin)
        self.origins |= {step.obs: origin for step in kept}
        self.model.steps += kept

    @rule(envs=st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True), ends=st.integers(0, 15),
          cut=st.integers(0, 15), reward=st.integers(-3, 3))  # fmt: skip
    def add(self, envs, ends, cut, reward):
        envs = envs[: self.buffer.capacity]
        steps, truncated = [], []
        for env in envs:
            name, here = self.open.get(env) or (self.model.begin(), self.tick(10.0))
            there = self.tick()
            steps.append(Step(here, there, reward, bool(ends >> env & 1), True, name))
            truncated.append(bool(cut >> env & 1))
            self.open[env] = (name, there)
        self.buffer.add_batch(
            np.array([[s.obs] for s in steps]),
            np.array([[s.obs / 2] for s in steps]),
            np.array([s.reward for s in steps]),
            np.array([[s.next_obs] for s in steps]),
            np.array([s.terminated for s in steps]),
            np.array(truncated),
            envs=envs,
            **({"tag": [3.0 * s.obs for s in steps]} if reward > 0 else {}),
        )
        self.untagged |= {step.obs for step in steps if reward <= 0}
        for env, step, stop in zip(envs, steps, truncated, strict=True):
            self.model.steps.append(step)
            if step.terminated or stop:
                self.model.closed.add(step.trajectory)
                del self.open[env]

    @precondition(lambda self: self.model.steps)
    @rule()
    def refresh(self):
        self.buffer.refresh(lambda obs, action: score(obs[:, 0]), rows_per_call=7)
        if self.name.startswith("arb"):
            self.model.refresh(score, TEMPERATURE, *CLIP)

    @precondition(lambda self: self.model.steps)
    @rule(n=st.integers(1, 9))
    def sample(self, n):
        rows = self.buffer.sample_indices((2, n))
        batch = self.buffer.gather(rows)
        index = {step.obs: i for i, step in enumerate(self.model.steps)}
        living = {step.obs for step in self.model.alive}
        for place in np.ndindex(2, n):
            obs = float(batch.obs[place][0])
            assert obs in living
            step = self.model.steps[index[obs]]
            assert batch.next_obs[place] == step.next_obs
            assert batch.action[place] == np.float32(step.obs / 2)
            assert batch.reward[place] == step.reward
            assert batch.mask[place] == (0.0 if step.terminated else 1.0)
            np.testing.assert_allclose(batch.return_to_go[place], self.model.return_to_go(index[obs]), rtol=1e-5)
            assert self.buffer.index.is_online(rows[place]) == step.online
            origin = self.buffer.index.origins[self.buffer.index.origin(rows[place])]
            assert origin == self.origins.get(obs, "online")
            if "tag" in batch.extras:
                np.testing.assert_equal(batch.extras["tag"][place], np.nan if obs in self.untagged else 3.0 * obs)
            else:
                assert living <= self.untagged

    @precondition(lambda self: self.model.steps)
    @rule(chosen=st.integers(0, 63), whole=st.booleans())
    def remove(self, chosen, whole):
        alive = self.model.alive
        names = list(dict.fromkeys(step.trajectory for step in alive))
        assert [len(episode) for episode in self.buffer.episodes()] == [
            sum(step.trajectory == name for step in alive) for name in names
        ]
        gone = {name for i, name in enumerate(names) if whole or chosen >> i % 6 & 1}
        left = [step for step in alive if step.trajectory not in gone]
        if whole:
            self.buffer.clear()
        else:
            mask = np.array([name in gone for name in names])
            assert self.buffer.remove(mask if chosen % 2 else np.flatnonzero(mask)) == len(alive) - len(left)
        assert len(self.buffer) == len(left)
        lost = gone | {name for name, _ in self.open.values()} - {step.trajectory for step in left}
        self.open = {env: opened for env, opened in self.open.items() if opened[0] not in lost}
        self.model.steps, self.model.refreshed = left, False
        for step in left:
            step.weight = None

    @precondition(lambda self: self.model.steps)
    @rule(h=st.integers(1, 5))
    def sample_chunks(self, h):
        batch = self.buffer.sample((2, 4), chunk=h)
        for place in np.ndindex(2, 4):
            _, after = self.model.around(float(batch.obs[place][0]))
            steps = after[:h]
            assert batch.valid[place].tolist() == [True] * len(steps) + [False] * (h - len(steps))
            held = [np.float32(s.obs / 2) for s in steps]
            assert batch.action[place][:, 0].tolist() == held + held[-1:] * (h - len(steps))
            total = sum(GAMMA**k * s.reward for k, s in enumerate(steps))
            np.testing.assert_allclose(batch.reward[place], total, rtol=1e-5, atol=1e-6)
            assert batch.next_obs[place] == steps[-1].next_obs
            mask = 0.0 if steps[-1].terminated else GAMMA ** (len(steps) - 1)
            np.testing.assert_allclose(batch.mask[place], mask, rtol=1e-6)

    @precondition(lambda self: self.model.steps)
    @rule(length=st.integers(1, 5), burn_in=st.integers(0, 4))
    def sample_sequences(self, length, burn_in):
        rows = self.buffer.sample_indices(6)
        batch, drawn = self.buffer.gather(rows, length=length, burn_in=burn_in), self.buffer.gather(rows)
        for i in range(6):
            before, after = self.model.around(float(drawn.obs[i, 0]))
            whole = [None] * burn_in + before + after + [None] * length
            stretch = whole[len(before) : len(before) + burn_in + length]
            assert batch.valid[i].tolist() == [step is not None for step in stretch]
            living = [step for step in stretch if step is not None]
            first = next(k for k, step in enumerate(stretch) if step is not None)
            for k, step in enumerate(stretch):
                held = step or (living[0] if k < first else living[-1])
                assert (batch.obs[i, k], batch.next_obs[i, k]) == (held.obs, held.next_obs)
                assert (batch.action[i, k], batch.reward[i, k]) == (np.float32(held.obs / 2), held.reward)
                assert batch.mask[i, k] == (not held.terminated)
                assert batch.start[i, k] == (step is not None and step is (before + after)[0])

    @rule()
    def save_and_restore(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "buffer.npz"
            self.buffer.save(path)
            other = self.new(self.buffer.capacity)
            other.load(path)
        if self.model.steps:
            a, b = (buffer.sample_indices((3, 5)) for buffer in (self.buffer, other))
            assert (a == b).all()
        self.buffer = other

    @precondition(lambda self: self.model.steps)
    @rule(seed=st.integers(0, 9))
    def batches_are_reproducible_from_the_generator(self, seed):
        a, b = (self.buffer.sample(8, rng=np.random.default_rng(seed)) for _ in range(2))
        assert all((x == y).all() for x, y in zip(a[:6], b[:6], strict=True))

    @invariant()
    def the_distribution_is_the_brute_force_one(self):
        if not hasattr(self, "model") or not self.model.steps:
            return
        p = self.buffer.sampler.probabilities()
        assert abs(p.sum() - 1.0) < 1e-9
        if self.name.startswith("arb") and self.model.refreshed:
            obs = self.buffer.storage.columns["obs"][: len(p), 0]
            expected = self.model.probability()
            np.testing.assert_allclose(p, [expected[float(x)] for x in obs], rtol=1e-5)


Interleavings.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestInterleavings = Interleavings.TestCase
