"""d3rlpy's own training loops, scalers and files around our buffer."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import arb

with warnings.catch_warnings():  # the host warns of itself while it is imported
    warnings.simplefilter("ignore")
    d3rlpy = pytest.importorskip("d3rlpy", reason="needs pip install 'arb-rl[d3rlpy]'")
    import gymnasium as gym
    import torch
    from d3rlpy.algos import AWACConfig, CalQLConfig, CQLConfig, DiscreteSACConfig, IQLConfig, SACConfig, TD3Config
    from d3rlpy.dataset import Episode, FIFOBuffer, FrameStackTransitionPicker, MDPDataset, MixedReplayBuffer
    from d3rlpy.models.torch.policies import build_gaussian_distribution, build_squashed_gaussian_distribution

    from arb.adapters.d3rlpy import RefreshCallback, ReplayBuffer, Ring, create_replay_buffer, policy_log_likelihood

from tests.adapters.pendulum import LIMIT, full_torque
from tests.adapters.strategies import STRATEGIES

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"
QUIET = {"show_progress": False, "logger_adapter": d3rlpy.logging.NoopAdapterFactory()}


@pytest.fixture(scope="module")
def episodes():
    return dataset(full_torque(600)).episodes


def dataset(past):
    columns = (past[key] for key in ("observations", "actions", "rewards", "terminals", "timeouts"))
    return MDPDataset(*columns)


def make_algo(config=IQLConfig, seed=0):
    d3rlpy.seed(seed)
    networks = d3rlpy.models.VectorEncoderFactory([16])
    algo = config(
        batch_size=16,
        actor_encoder_factory=networks,
        critic_encoder_factory=networks,
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(np.zeros(3), np.array([1.0, 1.0, 4.0])),
        action_scaler=d3rlpy.preprocessing.MinMaxActionScaler(-np.full(1, LIMIT), np.full(1, LIMIT)),
    ).create()
    algo.create_impl((3,), 1)
    return algo


def online(algo, buffer, steps, seed=5, callback=None):
    env = gym.make("Pendulum-v1")
    env.reset(seed=seed)
    refresh = callback or RefreshCallback(buffer, every=100)
    algo.fit_online(
        env, buffer=buffer, n_steps=steps, n_steps_per_epoch=steps, update_interval=50, callback=refresh, **QUIET
    )


def fine_tuned(episodes, config=IQLConfig, strategy=None, limit=1000, steps=300):
    algo = make_algo(config)
    buffer = create_replay_buffer(limit, strategy or arb.ARB(0.5), episodes=episodes, seed=0)
    algo.fit(buffer, n_steps=2, n_steps_per_epoch=2, **QUIET)
    online(algo, buffer, steps)
    return algo, buffer


def place(buffer, row):
    """A row as plain numbers: which transition it is."""
    episode, step = buffer.buffer[row]
    return (*np.ravel(episode.observations[step]), *np.ravel(episode.actions[step]), *np.ravel(episode.rewards[step]))


@pytest.mark.parametrize("config", [CalQLConfig, IQLConfig, CQLConfig, SACConfig])
def test_offline_then_online(episodes, config):
    algo, buffer = fine_tuned(episodes, config)
    buffer.refresh(algo)
    stats = buffer.stats()
    assert (stats["rows"], stats["trajectories"]) == (597 + 298, 5)  # the last step of each cut-off episode is not one
    rows = buffer.index.sample_indices(2000)
    share = buffer.index.is_online(rows).mean()
    assert share == pytest.approx(stats["online_share"], abs=0.05)
    assert share > stats["online_rows"] + 0.1


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_every_strategy(episodes, strategy):
    _, buffer = fine_tuned(episodes, strategy=strategy())
    if not buffer.index.sampler.trainable:  # a ratio that is learned has hardly begun to
        assert buffer.stats()["online_share"] >= buffer.stats()["online_rows"] - 1e-9
    assert len(buffer.sample_transition_batch(16).observations) == 16


def test_top_n_of_past_episodes():
    past = full_torque(600)
    kept = dataset(arb.keep_best(150)(past).to_dict()).episodes
    returns = [episode.compute_return() for episode in dataset(past).episodes]
    buffer = create_replay_buffer(1000, arb.Uniform(), episodes=kept, seed=0)
    kept_returns = [episode.compute_return() for episode in buffer.episodes]
    assert kept_returns == pytest.approx([max(returns)], rel=1e-6)  # a Dataset holds rewards in float32


def test_same_seed_same_training(episodes):
    (one, buffer), (two, again) = fine_tuned(episodes), fine_tuned(episodes)
    np.testing.assert_array_equal(buffer.index.sample_indices(50), again.index.sample_indices(50))
    for p, q in zip(one.impl.modules.policy.parameters(), two.impl.modules.policy.parameters(), strict=True):
        assert torch.equal(p, q)


def test_sampled_transitions_are_the_stored_ones(episodes):
    _, buffer = fine_tuned(episodes, strategy=arb.Uniform())
    stored = {}
    for episode in buffer.episodes:
        for i in range(episode.transition_count):
            stored[tuple(episode.observations[i])] = (
                episode.actions[i],
                episode.rewards[i],
                episode.observations[i + 1],
            )
    assert len(stored) == buffer.transition_count
    batch = buffer.sample_transition_batch(200)
    for obs, action, reward, next_obs in zip(
        batch.observations, batch.actions, batch.rewards, batch.next_observations, strict=True
    ):
        for value, expected in zip((action, reward, next_obs), stored[tuple(obs)], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_a_terminal_step_is_a_row():
    episode = Episode(np.zeros((3, 3), np.float32), np.zeros((3, 1), np.float32), np.zeros((3, 1), np.float32), True)
    buffer = create_replay_buffer(10, arb.Uniform(), episodes=[episode], seed=0)
    for _ in range(4):
        buffer.append(np.ones(3, np.float32), np.ones(1, np.float32), 1.0)
    buffer.clip_episode(True)
    assert buffer.transition_count == 3 + 4
    terminal = [buffer.transition_picker(*buffer.buffer[row]).terminal for row in range(7)]
    assert terminal == [0, 0, 1, 0, 0, 0, 1]
    assert buffer.stats()["trajectories"] == 2


def test_ring_wraps_as_the_host_does(episodes):
    """The same steps leave the same transitions in our ring and in the host's, and each in its own episode."""
    host = d3rlpy.dataset.create_fifo_replay_buffer(500, episodes=episodes)
    ours = create_replay_buffer(500, arb.ARB(0.5), episodes=episodes, seed=0)
    rng = np.random.default_rng(0)
    for step in range(330):
        values = rng.normal(size=3).astype(np.float32), rng.normal(size=1).astype(np.float32), float(step)
        for buffer in (host, ours):
            buffer.append(*values)
            if step % 90 == 89:
                buffer.clip_episode(bool(step % 2))
    assert sorted(place(host, i) for i in range(500)) == sorted(place(ours, i) for i in range(500))
    index = ours.index.episode_ids[:500]
    pairs = {(i, id(ours.buffer[row][0])) for row, i in enumerate(index.tolist())}
    assert len(pairs) == len({i for i, _ in pairs}) == len(ours.episodes) == len(host.episodes)
    ours.refresh(make_algo())


def test_dump_and_load_keep_the_weights(episodes, tmp_path):
    """In the middle of an episode, after the ring has wrapped; the next batches are the same, and it goes on."""
    algo, buffer = fine_tuned(episodes, limit=700)
    for _ in range(40):
        buffer.append(np.zeros(3, np.float32), np.zeros(1, np.float32), 0.0)
    buffer.refresh(algo)
    with (tmp_path / "buffer.h5").open("w+b") as file:
        buffer.dump(file)
    with (tmp_path / "buffer.h5").open("rb") as file:
        loaded = ReplayBuffer.load(file, Ring(700, arb.ARB(0.5)))
    np.testing.assert_array_equal(loaded.index.sampler.probabilities(), buffer.index.sampler.probabilities())
    assert loaded.index.refreshed_at == buffer.index.refreshed_at
    assert [place(loaded, row) for row in range(700)] == [place(buffer, row) for row in range(700)]
    one, two = buffer.sample_transition_batch(50), loaded.sample_transition_batch(50)
    np.testing.assert_array_equal(one.observations, two.observations)
    online(algo, loaded, 100)
    with (tmp_path / "buffer.h5").open("rb") as file:  # the host reads it as well
        assert d3rlpy.dataset.ReplayBuffer.load(file, FIFOBuffer(700)).transition_count == 700


def test_a_file_of_the_host_is_past_experience(episodes, tmp_path):
    with (tmp_path / "host.h5").open("w+b") as file:
        d3rlpy.dataset.create_infinite_replay_buffer(episodes=episodes).dump(file)
    with (tmp_path / "host.h5").open("rb") as file:
        loaded = ReplayBuffer.load(file, Ring(1000))
    assert (loaded.stats()["trajectories"], loaded.stats()["online_rows"]) == (3, 0)


def test_refresh_every_so_many_steps(episodes):
    buffer = create_replay_buffer(1000, arb.ARB(0.5), episodes=episodes, seed=0)
    refresh, at = RefreshCallback(buffer, every=40), []

    def watch(algo, epoch, total_step):
        refresh(algo, epoch, total_step)
        at.append(buffer.index.refreshed_at)

    online(make_algo(), buffer, 100, callback=watch)
    assert np.unique(at).tolist() == [597, 637, 677]  # the first step of an episode makes no transition yet


def test_serves_in_the_mixed_buffer_of_the_host(episodes):
    ours = create_replay_buffer(1000, arb.ARB(0.5), episodes=episodes, seed=0)
    past = d3rlpy.dataset.create_infinite_replay_buffer(episodes=episodes)
    assert len(MixedReplayBuffer(ours, past, 0.5).sample_transition_batch(20)) == 20


# ---- likelihood -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "build"),
    [
        (SACConfig, build_squashed_gaussian_distribution),
        (CalQLConfig, build_squashed_gaussian_distribution),
        (IQLConfig, build_gaussian_distribution),
        (AWACConfig, build_gaussian_distribution),
    ],
)
def test_density_is_the_log_prob_of_the_host(episodes, config, build):
    """Away from the bounds, where the hosts clamp differently; with scaled observations and actions."""
    algo = make_algo(config)
    obs, action = episodes[0].observations, 0.9 * episodes[0].actions
    scaled = torch.tensor(obs / np.array([1.0, 1.0, 4.0]), dtype=torch.float32)
    with torch.no_grad():
        expected = build(algo.impl.modules.policy(scaled)).log_prob(torch.tensor(action / LIMIT))[:, 0]
    np.testing.assert_allclose(policy_log_likelihood(algo, obs, action, "density"), expected, rtol=1e-3, atol=1e-3)


def test_standard_by_hand():
    """A policy with mean 0 and log width l: half torque is z = atanh(1/2) e^-l, so -z²/2 - ln(2π)/2."""
    algo = make_algo(SACConfig)
    for p in algo.impl.modules.policy.parameters():
        torch.nn.init.zeros_(p)
    score = policy_log_likelihood(algo, np.zeros((1, 3), np.float32), np.array([[1.0]]))
    assert score == pytest.approx(-0.5 * 0.549306**2 - 0.918939, abs=1e-5)


def test_discrete_policies():
    algo = DiscreteSACConfig(batch_size=16).create()
    algo.create_impl((3,), 2)
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    both = [np.exp(policy_log_likelihood(algo, obs, np.full((5, 1), choice))) for choice in (0, 1)]
    np.testing.assert_allclose(sum(both), 1.0, rtol=1e-6)


def test_stacked_frames_are_scored_as_they_are_sampled():
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (6, 1, 84, 84), dtype=np.uint8)
    episode = Episode(frames, rng.normal(size=(6, 1)).astype(np.float32), np.zeros((6, 1), np.float32), False)
    picker = FrameStackTransitionPicker(2)
    buffer = create_replay_buffer(10, arb.ARB(0.5), episodes=[episode], seed=0, transition_picker=picker)
    d3rlpy.seed(0)
    algo = SACConfig(observation_scaler=d3rlpy.preprocessing.PixelObservationScaler()).create()
    algo.create_impl((2, 84, 84), 1)
    buffer.refresh(algo)
    assert buffer.stats()["steps_since_refresh"] == 0


def test_a_deterministic_policy_is_scored_by_distance(episodes):
    buffer = create_replay_buffer(1000, arb.ARB(0.01, level="transition"), episodes=episodes, seed=0)
    algo = make_algo(TD3Config)
    buffer.refresh(algo)
    obs, action = buffer._buffer.columns(slice(0, len(buffer.index)))
    nearest = np.argmin(np.square(algo.predict(obs) - action).mean(-1))
    assert buffer.index.sampler.probabilities().argmax() == nearest
    RefreshCallback(buffer, every=0, score=lambda obs, action: -np.abs(action[:, 0]))(algo, 0, 0)
    assert buffer.index.sampler.probabilities().argmax() == np.argmin(np.abs(action[:, 0]))


# ---- mistakes ---------------------------------------------------------------------------------------------------


def test_mistakes_are_said_in_one_line(episodes):
    with pytest.raises(arb.DataError, match=r"needs arb\.adapters\.d3rlpy\.Ring to hold its rows, not FIFOBuffer"):
        ReplayBuffer(FIFOBuffer(10), episodes=episodes)
    buffer = create_replay_buffer(1000, arb.ARB(0.5), episodes=episodes, seed=0)
    with pytest.raises(arb.DataError, match="not built yet"):
        buffer.refresh(SACConfig().create())


def test_example_runs(monkeypatch, capsys):
    budget = ["--past", "400", "--pretrain", "2", "--steps", "200", "--every", "100", "--interval", "40"]
    monkeypatch.setattr(sys, "argv", ["d3rlpy_calql.py", *budget])
    runpy.run_path(str(EXAMPLES / "d3rlpy_calql.py"), run_name="__main__")
    assert capsys.readouterr().out.count("of the buffer") == 2
