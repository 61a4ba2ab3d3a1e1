import csv
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from arb import ReplayBuffer
from arb.agents.density import DensityRatio
from arb.data.tasks import FAMILIES
from arb.envs.rollout import ActionMap
from arb.lab import algorithm
from arb.lab.config import configure
from arb.lab.setup import Normalization, Setup
from arb.lab.strategies import STRATEGIES
from arb.lab.training import run
from arb.replay.dataset import Dataset
from tests.lab import tiny


def antmaze_like():
    """A long success, a short failure, and a long failure; rewards shifted by -1 as IQL sees them."""
    raw = np.concatenate([np.eye(1, 30, 29)[0], np.zeros(3), np.zeros(30)]).astype(np.float32)
    lengths, obs = np.array([30, 3, 30]), np.arange(63.0)[:, None]
    dataset = Dataset(obs, np.zeros((63, 1)), raw - 1.0, np.zeros(63, bool), lengths, obs[:3])
    return dataset, raw


def setup_of(strategy, **settings):
    dataset, raw = antmaze_like()
    overrides = {f"replay.{name}": value for name, value in settings.items()}
    config = configure(task="antmaze-umaze-v2", strategy=strategy, overrides=overrides)
    actions = ActionMap(gymnasium.spaces.Box(-1.0, 1.0, (1,)))
    return Setup(config, dataset, raw, {}, "", FAMILIES["antmaze"], None, Normalization(), actions)


def test_top_n_ranks_by_raw_returns():
    kept, _ = setup_of("top_n", keep=1).strategy()
    assert [name for name, row in STRATEGIES.items() if not row.keeps_all] == ["top_n"]
    assert kept.lengths.tolist() == [30]  # by shifted rewards the short failure would come first
    assert kept.rewards.tolist() == [-1.0] * 29 + [0.0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_draws_from_what_it_keeps(name):
    kept, sampler = setup_of(name, **({"keep": 10} if name == "top_n" else {})).strategy()
    buffer = ReplayBuffer(100, sampler, seed=0)
    buffer.load_dataset(kept)
    batch = buffer.sample(64)
    assert set(batch.reward.tolist()) <= {-1.0, 0.0}
    assert (batch.obs < (30 if name == "top_n" else 63)).all()


@pytest.mark.parametrize(
    ("strategy", "settings", "made"),
    [
        ("arb", {}, "ARB(temperature=0.2)"),
        ("arb", {"temperature": 2, "clip": (-5.0, 7.0)}, "ARB(temperature=2.0, clip=(-5.0, 7.0))"),
        ("arb_auto", {"effective": 0.1, "level": "transition"}, "ARB(effective=0.1, level='transition')"),
        ("parallel", {"offline_share": 0.25}, "Mixed(offline_share=0.25)"),
        ("annealed", {}, "Annealed(online_steps=5000)"),  # those of the preset
    ],
)
def test_settings_reach_the_sampler(strategy, settings, made):
    assert repr(setup_of(strategy, **settings).strategy()[1]) == made


# ---- rivals in runs ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rivals")
    tiny.write_data(folder / "data.npz")
    return folder


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "strategies")


def online_rows(place, strategy, **keys):
    """The online rows of metrics.csv of a tiny run."""
    config = tiny.config_of(place / "data.npz", "iql", strategy, **keys)
    folder = run(config, place / "-".join([strategy, *map(str, keys.values())])).folder
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["phase"] == "online"]


@pytest.mark.usefixtures("examples")
def test_a_warm_up_comes_before_the_first_update(place):
    short = {"schedule.collect": 4, "schedule.updates": 4}
    rows = online_rows(place, "warm_start:WarmStart", **short)
    assert [row["step"] for row in rows[:3]] == ["6", "10", "14"]  # a tenth of 60 online steps, then 4 at a time
    assert rows[-1]["step"] == "60"
    assert [float(row["replay.online_share"]) for row in rows] == pytest.approx([1.0] * len(rows))
    volume = [float(row["replay.replay_volume"]) * int(row["step"]) for row in rows[:2]]
    assert volume == pytest.approx([4 * 16, 8 * 16])  # as many updates after the warm-up as after any other block
    assert [row["step"] for row in online_rows(place, "naive", **short)[:3]] == ["4", "8", "12"]
    assert online_rows(place, "warm_start:WarmStart", **short, **{"replay.warm_up": 5})[0]["step"] == "5"


@pytest.mark.usefixtures("examples")
def test_the_bandit_is_asked_before_every_block(place):
    rows = online_rows(place, "road:Road", **{"replay.shares": (0.0, 0.25)})
    assert [float(row["replay.offline_share"]) for row in rows[:2]] == [0.0, 0.25]
    assert [float(row["replay.online_share"]) for row in rows[:2]] == pytest.approx([1.0, 0.75])
    assert rows[0]["replay.bandit_reward"] == "nan"
    assert np.isfinite(float(rows[1]["replay.bandit_reward"]))


def test_the_offline_share_is_annealed_over_all_online_steps(place):
    rows = online_rows(place, "annealed")
    assert [float(row["replay.offline_share"]) for row in rows] == pytest.approx([0.5 * 2 / 3, 0.5 / 3, 0.0])


def test_the_temperature_of_a_run_sets_itself(place):
    rows = online_rows(place, "arb_auto", **{"replay.effective": 0.5})
    assert [float(row["replay.effective_share"]) for row in rows] == pytest.approx([0.5] * 3, rel=1e-6)
    bounds = [(float(row["replay.online_rows"]) / 0.5) ** 0.5 for row in rows]
    assert [float(row["replay.online_bound"]) for row in rows] == pytest.approx(bounds)
    assert all(float(row["replay.online_share"]) <= bound for row, bound in zip(rows, bounds, strict=True))
    assert len({row["replay.temperature"] for row in rows}) == 3


def test_a_strategy_that_learns_learns_from_the_batches_that_the_agent_sees(place, monkeypatch):
    learnt, seen = [], []
    train, learn = DensityRatio.train, algorithm.learn

    def trained(self, rows, take, rng):
        learnt.append(take(rows).obs)
        return train(self, rows, take, rng)

    def learned(agent, batches, key, pause):
        seen.extend(batches.obs)
        return learn(agent, batches, key, pause=pause)

    monkeypatch.setattr(DensityRatio, "train", trained)
    monkeypatch.setattr(algorithm, "learn", learned)
    run(tiny.config_of(place / "data.npz", "iql", "berb"), place / "berb")
    assert len(learnt) == tiny.SMALL["schedule.online"]  # one update per step
    np.testing.assert_array_equal(seen[-len(learnt) :], learnt)  # after those of pre-training
