import csv
from pathlib import Path

import numpy as np
import pytest

from arb.agents.density import DensityRatio
from arb.lab import algorithm
from arb.lab.run import run
from arb.lab.strategies import STRATEGIES, Replay, prepare, strategy_row
from tests.lab import tiny


def antmaze_like():
    """A long success, a short failure, and a long failure; rewards shifted by -1 as IQL sees them."""
    raw = np.concatenate([np.eye(1, 30, 29)[0], np.zeros(3), np.zeros(30)]).astype(np.float32)
    episode = np.repeat([0, 1, 2], [30, 3, 30])
    dataset = {
        "observations": np.arange(63.0)[:, None],
        "actions": np.zeros((63, 1)),
        "rewards": raw - 1.0,
        "terminals": np.zeros(63, bool),
        "timeouts": np.append(episode[1:] != episode[:-1], True),
        "episode_ids": episode,
    }
    return dataset, raw


def test_top_n_ranks_by_raw_returns():
    dataset, raw = antmaze_like()
    kept, _ = prepare(Replay("top_n", keep=1), dataset, raw, 0, (1, 1, 100))
    assert [name for name, row in STRATEGIES.items() if not row.keeps_all] == ["top_n"]
    assert set(kept["episode_ids"]) == {0}  # by shifted rewards the short failure would come first
    assert kept["rewards"].tolist() == [-1.0] * 29 + [0.0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_draws_from_what_it_keeps(name):
    from arb import ReplayBuffer

    dataset, raw = antmaze_like()
    settings = strategy_row(name).settings(strategy=name)
    kept, sampler = prepare(Replay("top_n", keep=10) if name == "top_n" else settings, dataset, raw, 0, (1, 1, 100))
    buffer = ReplayBuffer(100, sampler, seed=0)
    buffer.load_dataset(kept)
    batch = buffer.sample(64)
    assert set(batch.reward.tolist()) <= {-1.0, 0.0}
    assert (batch.obs < (30 if name == "top_n" else 63)).all()


@pytest.mark.parametrize(
    ("replay", "made"),
    [
        (Replay(), "ARB(temperature=0.5)"),
        (Replay(temperature="auto"), "ARB()"),
        (Replay(temperature="auto", effective=0.1, level="transition"),
         "ARB(effective=0.1, level='transition')"),
        (Replay(clip=(-5.0, 7.0)), "ARB(temperature=0.5, clip=(-5.0, 7.0))"),
    ],
)  # fmt: skip
def test_settings_reach_the_sampler(replay, made):
    dataset, raw = antmaze_like()
    assert repr(prepare(replay, dataset, raw, 0, (1, 1, 100))[1]) == made


# ---- rivals in runs ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rivals")
    tiny.write_data(folder / "data.npz")
    return folder


def online_rows(place, strategy, **leaves):
    """The online rows of metrics.csv of a tiny run."""
    config = tiny.config_of(place / "data.npz", "iql", strategy, **leaves)
    folder = run(config, place / "-".join([strategy, *map(str, leaves.values())])).folder
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["phase"] == "online"]


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "strategies")


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

    def trained(self, rows, gather, rng):
        learnt.append(gather(rows).obs)
        return train(self, rows, gather, rng)

    def learned(agent, batches, key, pause):
        seen.extend(batches.obs)
        return learn(agent, batches, key, pause=pause)

    monkeypatch.setattr(DensityRatio, "train", trained)
    monkeypatch.setattr(algorithm, "learn", learned)
    run(tiny.config_of(place / "data.npz", "iql", "berb"), place / "berb")
    assert len(learnt) == tiny.SMALL["schedule.online"]  # one update per step
    np.testing.assert_array_equal(seen[-len(learnt) :], learnt)  # after those of pre-training
