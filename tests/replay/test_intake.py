"""Steps on their way in: the short way for plain ones is the long way, and what does not fit is refused by both."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arb import ARB, DataError, ReplayBuffer, Uniform
from tests.replay.test_restore import everything


def made(capacity=30, **kwargs):
    return ReplayBuffer(capacity, Uniform(), seed=0, **kwargs)


def vector(*values):
    return np.array(values, np.float32)


PLAIN = {"obs": vector(0, 0), "action": vector(0.5), "reward": 1.0, "next_obs": vector(1, 0), "terminated": False}


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["on", "ends", "cut", "jumps"])), max_size=60),
    double=st.booleans(),
)
def test_one_at_a_time_and_in_batches_of_one_are_the_same(steps, double):
    one, batch = made(20), made(20)
    at = {env: 100.0 * env for env in range(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, (env, what) in enumerate(steps):
            obs = np.array([at[env], env], np.float64 if double else np.float32)
            after = obs + np.array([1.0, 0.0], obs.dtype)
            action, over, cut = vector(i / 100), what == "ends", what == "cut"
            one.add(obs, action, float(i), after, over, cut, env=env)
            batch.add_batch(obs[None], action[None], [float(i)], after[None], [over], [cut], envs=[env])
            at[env] += 1.0 if what == "on" else 50.0
    assert everything(one) == everything(batch)


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.sampled_from(["on", "on", "ends", "cut", "jumps"]), max_size=40), capacity=st.integers(3, 20))
@example(["on", "ends"], 3)  # every trajectory loses its only row to the others
def test_several_at_a_time_and_by_name_are_the_same(steps, capacity):
    plain, named = made(capacity), made(capacity)
    at = np.array([0.0, 1000.0, 2000.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, what in enumerate(steps):
            obs = np.stack([at, np.arange(3.0)], axis=1).astype(np.float32)
            struck = np.arange(3) == i % 3
            flags = [struck & (what == kind) for kind in ("ends", "cut")]
            step = (obs, np.full((3, 1), i, np.float32), np.full(3, i, np.float32), obs + vector(1, 0), *flags)
            plain.add_batch(*step)
            named.add_batch(*step, envs=[0, 1, 2])
            at += np.where(struck & (what != "on"), 50.0, 1.0)
    assert everything(plain) == everything(named)


@pytest.mark.parametrize("name", ["obs", "action", "reward", "next_obs"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3.0])
def test_a_bad_step_among_several_plain_ones_is_refused(name, value):
    buffer = made(action_bounds=(-1.0, 1.0))
    obs, flags = np.zeros((3, 2), np.float32), np.zeros(3, bool)
    step = {"obs": obs, "action": np.zeros((3, 1), np.float32), "reward": np.zeros(3, np.float32), "next_obs": obs + 1}
    buffer.add_batch(**step, terminated=flags, truncated=flags)
    step |= {"obs": obs + 1, "next_obs": obs + 2}
    step[name] = step[name].copy()
    step[name].reshape(-1)[1] = value
    before = everything(buffer)
    if np.isfinite(value) and name != "action":
        with pytest.warns(UserWarning, match="moved to another") if name == "obs" else nullcontext():
            buffer.add_batch(**step, terminated=flags, truncated=flags)
        assert len(buffer) == 6
    else:
        with pytest.raises(DataError, match=f"^{name} (has a value|leaves the bounds)"):
            buffer.add_batch(**step, terminated=flags, truncated=flags)
        assert everything(buffer) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"obs": vector(np.nan, 0)}, "obs has a value that is not finite"),
        ({"obs": vector(0, np.inf)}, "obs has a value that is not finite"),
        ({"next_obs": vector(0, -np.inf)}, "next_obs has a value that is not finite"),
        ({"next_obs": np.array([1e300, 0.0])}, "next_obs has a value that is not finite"),
        ({"next_obs": vector(0)}, r"next_obs has shape \(1,\)"),
        ({"action": vector(np.nan)}, "action has a value that is not finite"),
        ({"action": vector(1.5)}, r"action leaves the bounds .* in row 0: \[1.5\]"),
        ({"action": vector(-1.5)}, "action leaves the bounds"),
        ({"action": vector(0, 0)}, "action has shape"),
        ({"reward": np.nan}, "reward has a value that is not finite"),
        ({"reward": -np.inf}, "reward has a value that is not finite"),
        ({"reward": 1e39}, "reward has a value that is not finite"),
        ({"terminated": 2}, "terminated must be True or False"),
    ],
)
@pytest.mark.parametrize("moving", [False, True])
def test_a_bad_step_among_plain_ones_is_refused(change, said, moving):
    buffer = made(action_bounds=(-1.0, 1.0))
    buffer.add(**PLAIN)
    if not moving:
        buffer.add(**PLAIN | {"obs": vector(1, 0), "next_obs": vector(3, 0), "terminated": True})
    before = everything(buffer)
    with pytest.raises(DataError, match=said):
        buffer.add(**PLAIN | {"obs": vector(1, 0) if moving else vector(7, 0)} | change)
    assert everything(buffer) == before


def test_enormous_numbers_are_finite():
    buffer = made()
    for x in (0.0, 1e25, 3e38):
        buffer.add(vector(x, 0), vector(x), x, vector(x, 1), terminated=True)
    assert buffer.gather(np.arange(3)).obs[:, 0].tolist() == vector(0.0, 1e25, 3e38).tolist()


def test_bounds_hold_as_the_actions_are_stored():
    buffer = made(action_bounds=(-0.4, 0.4))  # 0.4 is more in float32 than in float64
    buffer.add(**PLAIN | {"action": vector(0.4)})
    buffer.add(**PLAIN | {"obs": vector(1, 0), "action": np.array([-0.4])})
    assert len(buffer) == 2


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("action", "taken"),
    [
        ((0.4, 3.0), True),  # each number has bounds of its own
        ((0.6, 0.0), False),
        ((0.0, -3.1), False),
        ((0.0, np.nan), False),  # a comparison of numbers that begins with 0 would not see it
        ((np.nan, 0.0), False),
    ],
)
def test_bounds_of_several_numbers(action, taken, several):
    buffer = made(action_bounds=(vector(-0.5, -3.0), vector(0.5, 3.0)))
    none = np.zeros(1, bool)
    for x, a in ((0.0, (0.0, 0.0)), (1.0, action)):
        step = vector(x, 0), vector(*a), np.float32(1.0), vector(x + 1, 0)
        with nullcontext() if taken or x == 0 else pytest.raises(DataError, match=r"^action "):
            if several:
                buffer.add_batch(*(np.asarray(value)[None] for value in step), none, none)
            else:
                buffer.add(*step, False)
    assert len(buffer) == 1 + taken


@pytest.mark.parametrize("several", [False, True])
def test_observations_are_finite_where_jumps_are_allowed(several):
    buffer, none = made(discontinuity=None), np.zeros(1, bool)
    buffer.add(**PLAIN)
    step = PLAIN | {"obs": vector(np.nan, 0)}
    if several:
        step = {key: np.asarray(value, getattr(value, "dtype", np.float32))[None] for key, value in step.items()}
        step |= {"terminated": none, "truncated": none}
    with pytest.raises(DataError, match=r"^obs has a value that is not finite"):
        (buffer.add_batch if several else buffer.add)(**step)
    assert len(buffer) == 1


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("gap", "trajectories"), [(0.9e-6, 1), (1.1e-6, 2)])
def test_a_jump_is_a_distance_above_the_tolerance(gap, trajectories, several):
    buffer, x = made(), np.zeros(2, np.float32)
    part = vector(0.6 * gap, 0.8 * gap)  # neither coordinate jumps by itself
    for obs in (x, x + part):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if several:
                both = np.stack([obs, x])
                buffer.add_batch(both, np.zeros((2, 1)), np.zeros(2), np.zeros((2, 2)), np.zeros(2))
            else:
                buffer.add(obs, vector(0), 0.0, x, terminated=False)
    assert buffer.stats()["trajectories"] == trajectories + several


def test_a_tolerance_of_ones_own():
    buffer = made(discontinuity=0.5)
    for start in (0.0, 1.4, 1.9):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            buffer.add(vector(start), vector(0), 0.0, vector(1.0), terminated=False)
    assert buffer.stats()["trajectories"] == 2


def test_an_episode_that_fails_online_fails_forever():
    buffer = made(gamma=0.5, failure_reward=-1.0)
    for t, reward in enumerate([-1.0, -1.0]):
        buffer.add(vector(t), vector(0), reward, vector(t + 1), terminated=False, truncated=t == 1)
    for t, reward in enumerate([-1.0, 0.0]):
        buffer.add(vector(50 + t), vector(0), reward, vector(51 + t), terminated=t == 1)
    assert buffer.gather(np.arange(4)).return_to_go.tolist() == [-2.0, -2.0, -1.0, 0.0]


# ---- narrow columns -----------------------------------------------------------------------------------------------


def past(dtype, n=6):
    return {
        "observations": np.arange(n)[:, None].astype(dtype),
        "actions": np.zeros((n, 1), np.int16),
        "rewards": np.zeros(n),
        "terminals": np.arange(n) == n - 1,
    }


def test_half_precision_is_widened():
    buffer = made()
    buffer.load_dataset(past(np.float16))
    x = 70_000.1  # infinite in float16
    for t in range(3):
        buffer.add(vector(x + t), np.zeros(1, np.int16), 0.0, vector(x + t + 1), terminated=False)
    batch = buffer.gather(np.arange(len(buffer)))
    assert batch.obs.dtype == np.float32
    assert batch.obs[-1] == np.float32(x + 2)
    assert buffer.stats()["trajectories"] == 2  # no step looks like a jump


@pytest.mark.parametrize("several", [False, True])
def test_integers_that_fit_are_taken_and_others_refused_with_the_cure(several):
    buffer = made()
    buffer.load_dataset(past(np.int16))

    def add(x, action=0):
        step = (np.array([x]), np.array([action]), 0.0, np.array([x + 1]), False)
        buffer.add_batch(*(np.asarray(part)[None] for part in step)) if several else buffer.add(*step)

    add(100)
    before = everything(buffer)
    with pytest.raises(DataError, match="obs has values of dtype int64 that do not fit the int16 that came first"):
        add(2**15)
    with pytest.raises(DataError, match="action has values of dtype int64 that do not fit the int16"):
        add(101, 40_000)
    assert everything(buffer) == before
    add(101)
    assert buffer.gather(np.arange(len(buffer))).obs[-2:].ravel().tolist() == [100, 101]


# ---- batches that say more ----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["on", "on", "ends", "cut"])), min_size=1, max_size=40),
    st.integers(1, 5),
)
def test_returns_over_several_steps_by_brute_force(steps, n):
    buffer, at, told = made(25, gamma=0.7), {e: 1000.0 * e for e in range(3)}, []
    for i, (env, what) in enumerate(steps):
        told.append((env, at[env], float(i % 5), what))
        buffer.add(
            vector(at[env]), vector(0), float(i % 5), vector(at[env] + 1), what == "ends", what == "cut", env=env
        )
        at[env] += 1.0 if what == "on" else 50.0
    batch = buffer.gather(np.arange(len(buffer)), n_step=n)
    for k in range(len(buffer)):
        here = float(batch.obs[k, 0])
        own = [step for step in told if step[0] == here // 1000]
        rest = own[[x for _, x, _, _ in own].index(here) :]
        over = [i for i, step in enumerate(rest) if step[3] != "on"]
        rest = rest[: min([n, *(i + 1 for i in over)])]
        total = sum(0.7**j * reward for j, (_, _, reward, _) in enumerate(rest))
        np.testing.assert_allclose(batch.reward[k], total, rtol=1e-5)
        assert batch.next_obs[k, 0] == rest[-1][1] + 1
        expected = 0.0 if rest[-1][3] == "ends" else 0.7 ** (len(rest) - 1)
        np.testing.assert_allclose(batch.mask[k], expected, rtol=1e-5)


def test_a_terminal_inside_a_trajectory_stops_a_return():
    buffer = made(gamma=0.5)
    buffer.load_dataset({
        "observations": np.arange(4.0)[:, None], "actions": np.zeros((4, 1)), "rewards": np.ones(4),
        "terminals": np.array([0, 1, 0, 1]), "episode_ids": np.zeros(4, int),
    })  # fmt: skip
    batch = buffer.gather(np.arange(4), n_step=3)
    assert batch.reward.tolist() == [1.5, 1.0, 1.5, 1.0]
    assert batch.mask.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("n_step", [0, 1.5, "3"])
def test_a_number_of_steps_is_a_whole_number(n_step):
    buffer = made()
    buffer.add(**PLAIN)
    with pytest.raises(DataError, match="n_step must be"):
        buffer.sample(3, n_step=n_step)


def test_the_rows_of_a_batch_are_those_that_sample_indices_gives():
    buffer = ReplayBuffer(20, ARB(0.5), seed=0)
    buffer.load_dataset(past(np.float32))
    buffer.add(vector(50.0), np.zeros(1, np.int16), 0.0, vector(51.0), terminated=False)
    buffer.refresh(lambda obs, action: -obs[:, 0] / 10)
    batch = buffer.sample((3, 8), rng=np.random.default_rng(1))
    rows = buffer.sample_indices((3, 8), rng=np.random.default_rng(1))
    assert (batch.obs[..., 0] == np.where(rows == 6, 50, rows)).all()


def test_a_buffer_is_shown_in_one_line():
    buffer = made(20)
    buffer.load_dataset(past(np.float32))
    assert repr(buffer) == "ReplayBuffer(6 of 20 rows, Uniform())"


def test_a_plain_step_that_overwrites_offline_rows_says_so():
    buffer, here = ReplayBuffer(3, Uniform(), seed=0), np.zeros(1, np.float32)
    past = {"observations": np.ones((2, 1)), "actions": np.ones((2, 1)), "rewards": np.ones(2), "terminals": [0, 1]}
    buffer.load_dataset(past)
    buffer.add(here, here, 0.0, here, terminated=False)
    with pytest.warns(UserWarning, match="overwrite offline rows from now on: a capacity above 3"):
        buffer.add(here, here, 0.0, here, terminated=False)
    buffer.add(here, here, 0.0, here, terminated=False)  # said once


def test_bounds_leave_room_for_rounding():
    bounded = ReplayBuffer(5, Uniform(), action_bounds=(-1.0, 3.0))
    bounded.add([0.0], [3.000003], 0.0, [1.0], False)
    bounded.add([1.0], [-1.000003], 0.0, [1.0], True)
    for action in (3.00001, -1.00001):
        with pytest.raises(DataError, match="leaves the bounds"):
            bounded.add([0.0], [action], 0.0, [1.0], False)
    unbounded = ReplayBuffer(5, Uniform(), action_bounds=(-np.inf, 1.0))
    unbounded.add([0.0], [-1e9], 0.0, [1.0], False)
    with pytest.raises(DataError, match="leaves the bounds"):
        unbounded.add([0.0], [1.1], 0.0, [1.0], False)
