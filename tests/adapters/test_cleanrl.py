"""The buffer in CleanRL's shape: its calls, its loops, no host."""

import subprocess
import sys

import numpy as np
import pytest

from arb import ARB, DataError, Mixed, Uniform
from arb.adapters.cleanrl import ReplayBuffer
from tests.adapters.steps import dataset, numbered, play
from tests.adapters.strategies import learned_ratio


class Bounded:
    """All the buffer asks of a continuous action space."""

    low, high = np.array([-2.0], np.float32), np.array([2.0], np.float32)


def make(size=24, device=None, **kwargs):
    return ReplayBuffer(size, None, Bounded(), device, **({"sampler": Uniform(), "seed": 0} | kwargs))


def test_import_takes_neither_torch_nor_host():
    code = (
        "import sys, arb.adapters.cleanrl; assert not {'torch', 'gymnasium', 'stable_baselines3'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("as_dict", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_samples_are_the_steps_that_were_added(n_envs, as_dict, device):
    if device:
        pytest.importorskip("torch")
    rb = make(24, device, n_envs=n_envs)
    for step in play(n_envs, 37, as_dict):  # more than fit
        rb.add(*step)
    data = rb.sample(2000)
    assert (type(data.rewards).__module__ == "torch") == (device is not None)
    number = np.asarray(data.rewards).astype(np.int64)[:, 0]
    step, over = number % 1000, number % 5 == 4
    for wanted, found in [
        (numbered(number, True), data.observations),
        (numbered(number + 1 + 500 * over, True), data.next_observations),
    ]:
        for key, column in (found if as_dict else {"position": found}).items():
            np.testing.assert_array_equal(np.asarray(column), wanted[key])
    np.testing.assert_allclose(np.asarray(data.actions), number[:, None] / 5000.0, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(data.dones)[:, 0], over & ((step // 5) % 2 == 0))
    assert set(step) == set(range(37 - 24 // n_envs, 37))


@pytest.mark.parametrize(("handled", "ends"), [(True, {4.0}), (False, {4.0, 9.0})])
def test_time_limits_that_older_scripts_call_done(handled, ends):
    rb = make(handle_timeout_termination=handled)
    for step in play(1, 10):  # ends at 4, cut off at 9
        rb.add(*step)
    data = rb.sample(300)
    assert set(data.rewards[data.dones == 1.0]) == ends
    assert rb.stats()["trajectories"] == 2


@pytest.mark.parametrize("name", ["final_obs", "final_observation"])
def test_gymnasium_infos_end_trajectories_of_scripts_that_hand_over_terminations(name):
    rb = make(n_envs=2, handle_timeout_termination=False, autoreset="same_step")
    for obs, after, action, reward, over, _ in play(2, 10):
        infos = {name: list(after), f"_{name}": over} if over.any() else {}
        reset = np.where(over[:, None], -1.0, after)  # what the environment returns, if the script leaves it there
        rb.add(obs, reset, action, reward, np.zeros(2, bool), infos)
    assert rb.stats()["trajectories"] == 4
    assert not rb.sample(200).dones.any()
    assert (rb.sample(200).next_observations[:, 0] >= 0.0).all()


@pytest.mark.parametrize("mode", [{}, {"autoreset": "next_step"}])
def test_ends_that_nothing_tells_are_refused(mode):
    obs, after, action, reward, _, _ = play(1, 1)[0]
    with pytest.raises(DataError, match=r"autoreset=envs.*rb.add\(..., truncations=truncations\)"):
        make(**mode).add(obs, after, action, reward, [False], {})


def test_returns_over_several_steps_have_their_discounts():
    rb = make(sampler=Uniform())
    for step in play(1, 10):  # ends at 4, cut off at 9
        rb.add(*step)
    data = rb.sample(300, n_step=3)
    left = 5 - data.observations[:, 0].astype(int) % 5
    steps = np.minimum(left, 3)
    on = data.dones[:, 0] == 0.0
    np.testing.assert_allclose(data.discounts[on, 0], 0.99 ** steps[on], rtol=1e-6)
    assert (data.dones[:, 0] == ((data.observations[:, 0] < 5) & (left <= 3))).all()


def test_truncations_and_resets_may_be_said_outright():
    rb = make()
    obs, after, action, reward, _, _ = play(1, 1)[0]
    rb.add(obs, after, action, reward, [False], {}, truncations=[True])
    rb.add(after, obs, action, reward, [False], {}, truncations=[False], valid=[False])
    rb.add(obs, after, action, reward, [False], {}, truncations=[True])
    assert (len(rb), rb.stats()["trajectories"]) == (2, 2)


def test_refresh_asks_an_actor_before_tanh_on_the_scale_of_the_action_space():
    rb = make(40, sampler=ARB(1e-4, level="transition"))
    past = dataset(40) | {"actions": np.linspace(-1.9, 1.9, 40, dtype=np.float32)[:, None]}
    assert rb.load_dataset(past).rows == 40
    mean = np.arctanh(past["actions"][7] / 2.0)
    rb.refresh(lambda obs: (np.broadcast_to(mean, (len(obs), 1)), np.full((len(obs), 1), -1.0)))
    assert set(rb.sample(50).rewards.flatten()) == {7.0}


def test_an_actor_that_returns_its_action_is_scored_by_distance():
    rb = make(40, sampler=ARB(1e-4, level="transition"))
    past = dataset(40) | {"actions": np.linspace(-1.9, 1.9, 40, dtype=np.float32)[:, None]}
    rb.load_dataset(past)
    rb.refresh(lambda obs: np.broadcast_to(past["actions"][7], (len(obs), 1)))  # as TD3's and DDPG's scripts have it
    assert set(rb.sample(50).rewards.flatten()) == {7.0}


def test_a_torch_actor_gets_tensors_without_gradients():
    torch = pytest.importorskip("torch")
    rb = make(40, "auto", sampler=ARB())
    rb.load_dataset(dataset(40))
    network = torch.nn.Linear(3, 2)
    seen = []

    def actor(obs):
        both = network(obs)
        seen.append(both.requires_grad)
        return both.chunk(2, dim=-1)

    rb.refresh(actor)
    assert seen
    assert not any(seen)
    assert rb.sample(8).observations.device == torch.empty(0).device


def test_discrete_actions_ask_for_logits_and_come_out_as_a_column():
    rb = ReplayBuffer(20, None, object(), sampler=ARB(0.05, level="transition"), seed=0)
    rb.load_dataset(dataset(20) | {"actions": np.arange(20) % 2})
    rb.refresh(lambda obs: np.broadcast_to([0.0, 5.0], (len(obs), 2)))
    data = rb.sample(30)
    assert data.actions.shape == (30, 1)
    assert set(data.actions.flatten()) == {1}


def test_seed_comes_from_numpys_global_stream_if_not_given():
    drawn = []
    for _ in range(2):
        np.random.seed(3)  # noqa: NPY002 - as the scripts do
        rb = make(40, seed=None, sampler=Mixed())
        rb.load_dataset(dataset(40))
        drawn.append(rb.sample(20).rewards)
    np.testing.assert_array_equal(*drawn)
    assert repr(rb) == f"ReplayBuffer({len(rb.buffer)} of 40 rows, {rb.buffer.sampler!r})"


def test_a_learned_ratio_learns():
    rb = make(300, sampler=learned_ratio())
    rb.load_dataset(dataset(100))
    for step in play(1, 40):
        rb.add(*step)
    rb.sample(32)
    assert np.isfinite(rb.stats()["ratio_loss"])
