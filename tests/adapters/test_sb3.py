"""ARB inside Stable-Baselines3: its buffers, its SAC, its files."""

import copy
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: pip install 'arb-rl[sb3]'")

import gymnasium as gym
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from arb import ARB, DataError, Mixed, Uniform, keep_best
from arb.adapters.sb3 import DictReplayBuffer, RefreshCallback, ReplayBuffer, actor_score
from tests.adapters.steps import dataset, numbered, play
from tests.adapters.strategies import STRATEGIES, learned_ratio

torch.set_num_threads(1)

POSITION = spaces.Box(-np.inf, np.inf, (3,), np.float32)
BOTH = spaces.Dict({"position": POSITION, "goal": spaces.Box(-np.inf, np.inf, (1,), np.float32)})
ACTION = spaces.Box(-2.0, 2.0, (1,), np.float32)


def make(size=24, as_dict=False, **kwargs):
    kwargs = {"sampler": Uniform(), "seed": 0, "device": "cpu"} | kwargs
    return (DictReplayBuffer if as_dict else ReplayBuffer)(size, BOTH if as_dict else POSITION, ACTION, **kwargs)


def model_of(host, env="Pendulum-v1", sampler=None, policy="MlpPolicy", **kwargs):
    replay = DictReplayBuffer if policy == "MultiInputPolicy" else ReplayBuffer
    small = {"net_arch": [16]}
    settings = {"buffer_size": 3000, "learning_starts": 20, "policy_kwargs": small, "seed": 0, "device": "cpu"}
    settings |= {"replay_buffer_class": replay, "replay_buffer_kwargs": {"sampler": sampler}}
    return host(policy, env, **(settings | kwargs))


def as_arrays(obs):
    return {key: value.numpy() for key, value in (obs.items() if isinstance(obs, dict) else [("position", obs)])}


# ---- rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_dict", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("steps", [6, 37], ids=["filling", "wrapped"])
def test_samples_are_the_steps_that_were_added(n_envs, steps, as_dict):
    buffer = make(24, as_dict, n_envs=n_envs)
    for step in play(n_envs, steps, as_dict):
        buffer.add(*step)
    batch = buffer.sample(2000)
    number = batch.rewards.numpy().astype(np.int64)[:, 0]
    step, env = number % 1000, number // 1000
    over = step % 5 == 4
    wanted_before, wanted_after = (numbered(n, True) for n in (number, number + 1 + 500 * over))
    for wanted, found in [(wanted_before, batch.observations), (wanted_after, batch.next_observations)]:
        for key, column in as_arrays(found).items():
            np.testing.assert_array_equal(column, wanted[key])
    np.testing.assert_allclose(batch.actions.numpy()[:, 0], number / 5000.0, rtol=1e-6)
    np.testing.assert_array_equal(batch.dones.numpy()[:, 0], over & ((step // 5) % 2 == 0))  # time limits are no ends
    living = range(max(0, steps - 24 // n_envs), steps)
    assert set(zip(env, step, strict=True)) == {(e, s) for e in range(n_envs) for s in living}


def test_timeouts_end_the_task_if_the_host_is_told_so():
    buffer = make(handle_timeout_termination=False)
    for step in play(1, 10):
        buffer.add(*step)
    batch = buffer.sample(200)
    np.testing.assert_array_equal(batch.dones.numpy(), batch.rewards.numpy() % 5 == 4)


def test_trajectories_end_with_episodes_and_with_silent_resets():
    buffer = make(60, n_envs=2)
    for step in play(2, 12):  # 5 + 5 + 2 steps each
        buffer.add(*step)
    assert buffer.index.stats()["trajectories"] == 6
    buffer.add(*play(2, 13)[12])  # goes on
    assert buffer.index.stats()["trajectories"] == 6
    buffer.add(*play(2, 1)[0])  # both jump
    assert buffer.index.stats()["trajectories"] == 8


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("as_dict", [False, True], ids=["array", "dict"])
def test_returns_over_several_steps_are_the_hosts_own(n_envs, as_dict):
    ours = make(24, as_dict, n_envs=n_envs, n_steps=3, gamma=0.9)
    host = NStepReplayBuffer(24, POSITION, ACTION, "cpu", n_envs=n_envs, n_steps=3, gamma=0.9)
    for step, same in zip(play(n_envs, 37, as_dict), play(n_envs, 37), strict=True):  # the ring wraps
        ours.add(*step)
        host.add(*same)
    batch = ours.sample(300)
    first = as_arrays(batch.observations)["position"][:, 0].astype(int)
    by_start = {}  # the host draws the environment of each row by chance: ask until all are there
    for _ in range(60):
        found = host._get_samples(np.arange(host.size()))
        for i, start in enumerate(found.observations.numpy()[:, 0].astype(int)):
            by_start[start] = [x[i].numpy() for x in (found.next_observations, *found[3:])]
    for i, start in enumerate(first):
        ours_i = [as_arrays(batch.next_observations)["position"][i], *(x[i].numpy() for x in batch[3:])]
        for mine, theirs in zip(ours_i, by_start[start], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_returns_over_several_steps_train():
    replay = {"n_steps": 3, "gamma": 0.9}
    model = model_of(SAC, gamma=0.9, learning_starts=10, replay_buffer_kwargs=replay)
    model.learn(30, callback=RefreshCallback(10))
    assert model.replay_buffer.sample(4).discounts.shape == (4, 1)
    with pytest.raises(DataError, match=r"sums 3 rewards with gamma=0.9, .* pass gamma=0.99"):
        model_of(SAC, learning_starts=10, replay_buffer_kwargs=replay).learn(1, callback=RefreshCallback(10))


def test_rows_added_before_learning_are_pointed_out():
    model = model_of(SAC, sampler=Mixed())
    obs = np.zeros((1, 3), np.float32)
    for _ in range(3):
        model.replay_buffer.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.ones(1), [{}])
    with pytest.warns(UserWarning, match="3 rows were added before learning and count as online steps: .*load_dataset"):
        model.learn(10, callback=RefreshCallback())
    model.learn(10, callback=RefreshCallback())  # quiet: these came from learning


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ReplayBuffer(24, BOTH, ACTION), "use replay_buffer_class=arb.adapters.sb3.DictReplayBuffer"),
        (lambda: make(n_sampled_goal=4), "n_sampled_goal belongs to HerReplayBuffer, .* without arb"),
        (lambda: make(n_steps=0), "n_steps must be at least 1"),
    ],
)
def test_what_the_buffer_cannot_do_is_said_in_one_line(made, said):
    with pytest.raises(DataError, match=said):
        made()


def test_offline_rows_that_are_overwritten_are_mourned_once():
    buffer = make(12)
    buffer.load_dataset(dataset(10))
    steps = play(1, 8)
    for step in steps[:2]:
        buffer.add(*step)
    with pytest.warns(UserWarning, match="overwrite offline rows from now on: a buffer_size above 12"):
        buffer.add(*steps[2])
    for step in steps[3:]:
        buffer.add(*step)


def test_reset_forgets():
    buffer = make()
    for step in play(1, 30):
        buffer.add(*step)
    buffer.reset()
    buffer.add(*play(1, 1)[0])
    assert set(buffer.sample(20).rewards.flatten().tolist()) == {0.0}
    assert repr(buffer) == f"ReplayBuffer(1 of {buffer.buffer_size} rows, {buffer.index.sampler!r})"


def test_memory_optimisation_is_refused():
    with pytest.raises(DataError, match="leave it False"):
        make(optimize_memory_usage=True, handle_timeout_termination=False)


def test_rows_written_past_the_buffer_are_refused():
    buffer = make()
    buffer.full = True
    with pytest.raises(DataError, match="24 rows, but 0 came in through add or load_dataset"):
        buffer.sample(4)


# ---- offline data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_dict", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize(("n_envs", "dropped"), [(1, 0), (3, 2)])
def test_loaded_rows_are_those_of_the_dataset(n_envs, dropped, as_dict):
    past = dataset(50, as_dict=as_dict, bound=2.0)
    past["terminals"][29] = True
    buffer = make(90, as_dict, n_envs=n_envs)
    assert buffer.load_dataset(past) == (50 - dropped, 5, dropped)
    batch = buffer.sample(3000)
    row = batch.rewards.numpy()[:, 0].astype(np.int64)
    assert set(row) == set(range(50 - dropped))
    for name, found in [("observations", batch.observations), ("next_observations", batch.next_observations)]:
        columns = past[name] if as_dict else {"position": past[name]}
        within = np.arange(50) % 10 != 9  # inside a trajectory a step leads to the next row's observation
        for key, column in columns.items():
            if name == "next_observations":
                start = past["observations"][key] if as_dict else past["observations"]
                column = np.where(within[:, None], np.roll(start, -1, axis=0), column)
            np.testing.assert_array_equal(as_arrays(found)[key], column[row])
    np.testing.assert_allclose(batch.actions.numpy(), past["actions"][row] / 2.0, atol=1e-6)
    np.testing.assert_array_equal(batch.dones.numpy()[:, 0], row == 29)


def test_online_steps_follow_loaded_rows_and_are_known_as_online():
    buffer = make(60, n_envs=3)
    buffer.load_dataset(dataset(33))
    for step in play(3, 4):
        buffer.add(*step)
    stats = buffer.index.stats()
    assert (stats["rows"], stats["online_rows"]) == (45, 12 / 45)
    assert buffer.pos == 15
    rows = buffer.index.sample_indices(500)
    online = buffer.rewards.reshape(-1)[rows[buffer.index.is_online(rows)]]
    assert set(online) == {1000 * e + s for e in range(3) for s in range(4)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"actions": np.full((20, 1), 2.5)}, r"dataset\['actions'\] leaves the bounds .* in row 0"),
        ({"actions": np.zeros((20, 2))}, r"has shape \(2,\) per step, but the environment's \(1,\)"),
        ({"observations": np.zeros((20, 4)), "next_observations": None}, r"has shape \(4,\) per step"),
        ({"rewards": np.full(20, np.nan)}, "not finite in row 0"),
        ({"observations": np.zeros((20, 3), np.complex64), "next_observations": None}, "numbers, got dtype complex64"),
    ],
)
def test_load_dataset_says_in_one_line_what_is_wrong(change, says):
    buffer = make(100)
    with pytest.raises(DataError, match=says) as error:
        buffer.load_dataset(dataset(20) | change)
    assert "\n" not in str(error.value)
    assert len(buffer.index) == 0


def test_load_dataset_refuses_what_does_not_fit():
    with pytest.raises(DataError, match="the dataset has 200 rows but the buffer a capacity of 24"):
        make(24).load_dataset(dataset(200))


def test_top_n_is_loading_the_best():
    past = dataset(40)
    buffer = make(100)
    buffer.load_dataset(keep_best(15)(past))
    assert set(buffer.sample(500).rewards.flatten().tolist()) == set(range(20, 40))


# ---- scores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_sde", [False, True], ids=["gaussian", "gSDE"])
def test_density_is_that_of_the_hosts_own_actor(use_sde):
    model = model_of(SAC, use_sde=use_sde)
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(50, 3)).astype(np.float32), rng.uniform(-0.9, 0.9, (50, 1)).astype(np.float32)
    with torch.no_grad():
        mean, log_std, extra = model.actor.get_action_dist_params(torch.as_tensor(obs))
        host = model.actor.action_dist.proba_distribution(mean, log_std, **extra).log_prob(torch.as_tensor(action))
    np.testing.assert_allclose(actor_score(model, "density")(obs, action), host.numpy(), rtol=1e-3, atol=1e-3)


def test_scores_are_of_normalised_observations_and_host_scale_actions():
    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    model = model_of(SAC, env, ARB())
    model.learn(60, callback=RefreshCallback(every=10))
    buffer, asked = model.replay_buffer, []
    buffer.refresh(lambda obs, action: asked.append((obs, action)) or action[:, 0], env)
    np.testing.assert_allclose(asked[0][0][:60], env.normalize_obs(buffer.observations[:60, 0]), rtol=1e-6)
    np.testing.assert_array_equal(asked[0][1][:60], buffer.actions[:60, 0])
    assert np.abs(buffer.actions).max() <= 1.0


def test_an_algorithm_without_an_actor_serves_strategies_that_do_not_ask():
    with pytest.raises(DataError, match=r"DQN has no actor.*arb.Uniform, arb.Mixed.*RefreshCallback\(score="):
        model_of(DQN, "CartPole-v1", ARB()).learn(10, callback=RefreshCallback())
    model_of(DQN, "CartPole-v1", Mixed()).learn(40, callback=RefreshCallback())


def test_a_deterministic_actor_is_scored_by_distance():
    model = model_of(TD3, sampler=ARB(0.01, level="transition"))
    model.learn(40, callback=RefreshCallback(every=10))
    buffer = model.replay_buffer
    buffer.refresh(actor_score(model))
    chosen, _ = model.predict(buffer.observations[:40, 0], deterministic=True)
    nearest = np.argmin(np.abs(chosen / 2.0 - buffer.actions[:40, 0]))  # the environment's actions reach to 2
    assert np.argmax(buffer.index.sampler.probabilities()) == nearest


def test_a_score_of_your_own_serves_any_algorithm():
    model = model_of(TD3, sampler=ARB(0.1, level="transition"))
    model.learn(40, callback=RefreshCallback(every=40, score=lambda obs, action: -12 * np.abs(action[:, 0])))
    model.replay_buffer.refresh(lambda obs, action: -12 * np.abs(action[:, 0]))
    likeliest = np.argmax(model.replay_buffer.index.sampler.probabilities())
    assert likeliest == np.argmin(np.abs(model.replay_buffer.actions[:40]))


def test_callback_needs_our_buffer():
    with pytest.raises(DataError, match="not ReplayBuffer"):
        SAC("MlpPolicy", "Pendulum-v1", buffer_size=10).learn(1, callback=RefreshCallback())


def test_a_strategy_that_is_never_refreshed_says_so_once(monkeypatch):
    monkeypatch.setattr("arb.replay.index.PATIENCE", 8)
    buffer, quiet = make(sampler=ARB()), make(sampler=Uniform())
    for i, step in enumerate(play(1, 20)):
        buffer.add(*step)
        quiet.add(*step)
        quiet.sample(2)
        with pytest.warns(UserWarning, match="RefreshCallback") if i == 7 else nullcontext():
            buffer.sample(2)  # a second warning would be an error


# ---- training -------------------------------------------------------------------------------------------------------


def finetuned(sampler, steps=400):
    model = model_of(SAC, sampler=sampler, learning_rate=5e-3)
    model.replay_buffer.load_dataset(dataset(1000, bound=2.0))
    model.learn(steps, callback=RefreshCallback(every=100))
    return model


@pytest.fixture(scope="module")
def tuned():
    return finetuned(ARB(0.3))


def test_online_steps_are_drawn_more_often_than_they_are_stored(tuned):
    stats = tuned.replay_buffer.index.stats()
    rows = tuned.replay_buffer.index.sample_indices(5000, rng=np.random.default_rng(0))
    drawn = tuned.replay_buffer.index.is_online(rows).mean()
    assert stats["online_rows"] == pytest.approx(400 / 1400)
    assert drawn > 1.2 * stats["online_rows"]
    assert stats["steps_since_refresh"] < 100
    assert tuned.logger.name_to_value["arb/online_share"] > 0.0


def test_equal_seeds_give_equal_runs(tuned):
    again = finetuned(ARB(0.3))
    for ours, theirs in zip(tuned.policy.parameters(), again.policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    np.testing.assert_array_equal(
        copy.deepcopy(tuned.replay_buffer).index.sample_indices(100), again.replay_buffer.index.sample_indices(100)
    )


def test_saved_and_loaded_buffer_draws_what_it_would_have_drawn(tuned, tmp_path):
    tuned.save_replay_buffer(tmp_path / "buffer.pkl")
    tuned.save(tmp_path / "model.zip")
    assert (tmp_path / "model.zip").stat().st_size < 200_000  # no rows in it
    other = SAC.load(tmp_path / "model.zip", env=tuned.get_env())
    assert len(other.replay_buffer.index) == 0
    other.load_replay_buffer(tmp_path / "buffer.pkl")
    original = copy.deepcopy(tuned.replay_buffer)
    assert other.replay_buffer.index.stats() == original.index.stats()
    assert other.replay_buffer.index.refreshed_at == original.index.refreshed_at
    for ours, theirs in zip(original.sample(64)[:5], other.replay_buffer.sample(64)[:5], strict=True):
        assert torch.equal(ours, theirs)
    other.learn(30, callback=RefreshCallback(every=10))


def test_models_do_not_share_the_sampler_they_were_given(tuned):
    sampler = ARB()
    first, second = (model_of(SAC, sampler=sampler).replay_buffer.index.sampler for _ in range(2))
    assert first is not second
    assert not hasattr(sampler, "index")


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_every_strategy_trains_several_environments(strategy):
    env = make_vec_env("Pendulum-v1", n_envs=2)
    model = model_of(SAC, env, strategy(), train_freq=5)
    model.replay_buffer.load_dataset(dataset(200, bound=2.0))
    model.learn(80, callback=RefreshCallback(every=20))
    stats = model.replay_buffer.index.stats()
    assert (stats["rows"], stats["trajectories"]) == (280, 22)
    assert model.num_timesteps == 80


def test_a_learned_ratio_learns_inside_the_host(tmp_path):
    model = model_of(SAC, make_vec_env("Pendulum-v1", n_envs=2), learned_ratio(), train_freq=5)
    model.replay_buffer.load_dataset(dataset(200, bound=2.0))
    model.learn(80)
    rows = model.replay_buffer.index
    assert np.isfinite(rows.stats()["ratio_loss"])
    assert len(np.unique(rows.sampler.probabilities())) > 3  # more than the weights that rows begin with
    model.save_replay_buffer(tmp_path / "buffer")
    other = model_of(SAC, make_vec_env("Pendulum-v1", n_envs=2), learned_ratio())
    other.load_replay_buffer(tmp_path / "buffer")
    assert (other.replay_buffer.index.sample_indices(64) == rows.sample_indices(64)).all()


class Dictionary(gym.ObservationWrapper):
    observation_space = BOTH

    def observation(self, obs):
        return {"position": obs, "goal": obs[:1]}


def test_dict_observations_train():
    env = VecNormalize(make_vec_env(lambda: Dictionary(gym.make("Pendulum-v1")), n_envs=2))
    model = model_of(SAC, env, ARB(), "MultiInputPolicy")
    model.replay_buffer.load_dataset(dataset(100, as_dict=True))
    model.learn(60, callback=RefreshCallback(every=20))
    assert model.replay_buffer.index.stats()["clipped_low"] < 1.0


def test_example_runs(monkeypatch, capsys):
    example = Path(__file__).parents[2] / "examples" / "sb3_sac.py"
    monkeypatch.setattr(sys, "argv", [str(example), "--steps", "40", "--updates", "2", "--every", "20"])
    runpy.run_path(str(example), run_name="__main__")
    assert "step     40   online:   0% of the rows" in capsys.readouterr().out
