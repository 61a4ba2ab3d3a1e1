import numpy as np
import pytest

from arb.strategies import STRATEGIES, Replay, prepare


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
    kept, _ = prepare(Replay("top_n", keep=1), dataset, raw, 0, (1, 1))
    assert set(kept["episode_ids"]) == {0}  # by shifted rewards the short failure would come first
    assert kept["rewards"].tolist() == [-1.0] * 29 + [0.0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_draws_from_what_it_keeps(name):
    from arb import ReplayBuffer

    dataset, raw = antmaze_like()
    kept, sampler = prepare(Replay(name, keep=10), dataset, raw, 0, (1, 1))
    buffer = ReplayBuffer(100, sampler, seed=0)
    buffer.load(kept)
    batch = buffer.sample(64)
    assert set(batch.reward.tolist()) <= {-1.0, 0.0}
    assert (batch.obs < (30 if name == "top_n" else 63)).all()


@pytest.mark.parametrize(
    ("replay", "made"),
    [
        (Replay(), "OnPolicy(temperature=0.5)"),
        (Replay(temperature="auto"), "OnPolicy(temperature='auto', effective=0.25)"),
        (Replay(temperature="auto", effective=0.1, level="transition"),
         "OnPolicy(temperature='auto', effective=0.1, level='transition')"),
        (Replay(temperature=2.0, least_effective=0.25), "OnPolicy(temperature=2.0, least_effective=0.25)"),
        (Replay(unit="spread", clip=(-5.0, 7.0)), "OnPolicy(temperature=0.5, unit='spread', clip=(-5.0, 7.0))"),
    ],
)  # fmt: skip
def test_settings_reach_the_sampler(replay, made):
    dataset, raw = antmaze_like()
    assert repr(prepare(replay, dataset, raw, 0, (1, 1))[1]) == made
