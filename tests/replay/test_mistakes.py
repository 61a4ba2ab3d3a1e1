"""The mistakes of a trial by a new user, each with what comes of it: one line that says what to do, or the right thing.

`SAID` are refused with a `DataError`, `WARNED` are done with a warning, and `HANDLED` simply work.
"""

import copy
import json
import pickle
import warnings

import numpy as np
import pytest

import arb
from arb import ARB, DataError, Mixed, Prioritized, ReplayBuffer, Uniform

RNG = np.random.default_rng(0)
ROWS = 200
PAST = {
    "observations": RNG.normal(size=(ROWS, 3)),
    "actions": RNG.uniform(-1, 1, size=(ROWS, 2)),
    "rewards": RNG.normal(size=ROWS),
    "terminals": np.arange(ROWS) % 50 == 49,
}
STEP = {"obs": np.zeros(3), "action": np.zeros(2), "reward": 1.0, "next_obs": np.ones(3), "terminated": False}
ENVS = {
    "obs": np.zeros((2, 3)),
    "action": np.zeros((2, 2)),
    "reward": np.zeros(2),
    "next_obs": np.ones((2, 3)),
    "terminated": np.zeros(2, bool),
}


def made(sampler=None, capacity=1000, **options):
    return ReplayBuffer(capacity, sampler or Uniform(), seed=0, **options)


def loaded(sampler=None, capacity=1000, **options):
    buffer = made(sampler, capacity, **options)
    buffer.load_dataset(PAST)
    return buffer


def load(without=(), **columns):
    return made().load_dataset({name: c for name, c in (PAST | columns).items() if name not in without})


def add(*steps, **options):
    buffer = made(**options)
    for step in steps:
        buffer.add(**STEP | step)
    return buffer


def add_batch(**changes):
    made().add_batch(**ENVS | changes)


def refresh(score, **options):
    loaded(ARB("auto"), **options).refresh(score)


def mean(value, log_std=0.0, make=arb.gaussian_score, **options):
    """A refresh whose policy returns this for all rows."""
    refresh(make(lambda obs: (value, log_std), **options))


def bad(name, row, value):
    column = PAST[name].astype(float).copy()
    column[row] = value
    return {name: column}


def restored(path, change, **options):
    first = loaded(ARB("auto"))
    first.save(path / "buffer.npz")
    change(path / "buffer.npz")
    made(**{"sampler": ARB("auto"), **options}).load(path / "buffer.npz")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def shared(sampler):
    made(sampler), made(sampler)


ZEROS, N = np.zeros((1000, 2)), 1000  # a score is asked for as many rows as the buffer has room for
SAID = {
    # ---- made wrongly ----
    "no capacity": (lambda _: made(capacity=0), "capacity must be at least 1"),
    "a capacity of 1e6": (lambda _: made(capacity=1e6), "capacity must be a whole number.*write 1000000"),
    "a capacity in words": (lambda _: made(capacity="1000"), "capacity must be a whole number"),
    "a class as sampler": (lambda _: made(ARB), "class ARB: make one of it"),
    "a word as sampler": (lambda _: made("arb"), "sampler must be a strategy"),
    "one sampler for two buffers": (lambda _: shared(ARB()), "already serves another buffer"),
    "gamma above 1": (lambda _: made(gamma=1.5), "gamma must lie between 0 and 1"),
    "gamma below 0": (lambda _: made(gamma=-0.1), "gamma must lie between 0 and 1"),
    "gamma in words": (lambda _: made(gamma="0.99"), "gamma must"),
    "a seed in words": (lambda _: ReplayBuffer(10, seed="zero"), "seed must be a whole number"),
    "a negative seed": (lambda _: ReplayBuffer(10, seed=-1), "seed must be a whole number"),
    "an unknown rule for ends": (lambda _: load_with(boundaries="reset"), "did you mean 'resets'"),
    "autoreset misspelt": (lambda _: made(autoreset="nextstep"), "did you mean 'next_step'"),
    "bounds the wrong way round": (lambda _: made(action_bounds=(1.0, -1.0)), "action_bounds"),
    "one bound": (lambda _: made(action_bounds=1.0), "action_bounds"),
    "a negative discontinuity": (lambda _: made(discontinuity=-1.0), "discontinuity"),
    "an unknown storage": (lambda _: made(storage="disk"), "storage must be 'memory' or 'memmap:FOLDER'"),
    "storage without a folder": (lambda _: made(storage="memmap:"), "storage must be 'memory' or 'memmap:FOLDER'"),
    "a temperature of 0": (lambda _: ARB(0.0), "temperature must be greater than 0"),
    "a negative temperature": (lambda _: ARB(-1.0), "temperature must be greater than 0"),
    "a temperature misspelt": (lambda _: ARB("Auto"), "temperature must be greater than 0, or \"auto\""),
    "no temperature": (lambda _: ARB(None), "temperature must"),
    "an effective share of 0": (lambda _: ARB(effective=0.0), "effective must be a share"),
    "an effective share in percent": (lambda _: ARB(effective=25), "effective must be a share"),
    "clip bounds the wrong way round": (lambda _: ARB(clip=(7.0, -12.0)), "lower clip bound must lie below"),
    "an unknown level": (lambda _: ARB(level="step"), "level must be"),
    "an offline share in percent": (lambda _: Mixed(50), "offline_share must lie between 0 and 1"),
    "shares that do not add up": (lambda _: Mixed({"offline": 0.5, "demos": 0.4}), "add up to 1"),
    "annealing over no step": (lambda _: arb.Annealed(0), "online_steps must be at least 1"),
    "no half-life": (lambda _: arb.Recent(0.0), "half_life must be"),
    "beta above 1": (lambda _: Prioritized(beta=2.0), "beta from 0 to 1"),
    "keep nothing": (lambda _: arb.keep_best(0), "at least 1 transition"),
    # ---- datasets ----
    "no terminals": (lambda _: load(without=["terminals"]), "no 'terminals'"),
    "terminations for terminals": (
        lambda _: load(without=["terminals"], terminations=PAST["terminals"]), "rename 'terminations'",
    ),
    "dones for terminals": (lambda _: load(without=["terminals"], dones=PAST["terminals"]), "'dones' may mean it"),
    "no observations": (lambda _: load(without=["observations"]), "no 'observations'"),
    "obs for observations": (lambda _: load(without=["observations"], obs=PAST["observations"]), "no 'observations'"),
    "next_obs for next_observations": (
        lambda _: load(next_obs=PAST["observations"]), "rename it 'next_observations'",
    ),
    "next_observation for next_observations": (
        lambda _: load(next_observation=PAST["observations"]), "rename it 'next_observations'",
    ),
    "time_out and truncated": (
        lambda _: load(timeouts=PAST["terminals"], truncated=PAST["terminals"]), "mean the same",
    ),
    "dones that contradict": (lambda _: load(dones=np.zeros(ROWS)), "contradicts"),
    "episode_id for episode_ids": (
        lambda _: load(episode_id=np.zeros(ROWS, int)), "rename it 'episode_ids'",
    ),
    "episode_ids as floats": (lambda _: load(episode_ids=np.zeros(ROWS)), "one integer per row"),
    "a list of episodes": (lambda _: made().load_dataset([PAST]), "a dataset is a dict of arrays"),
    "a file's name": (lambda _: made().load_dataset("past.npz"), "a dataset is a dict of arrays"),
    "nothing": (lambda _: made().load_dataset(None), "a dataset is a dict of arrays"),
    "no rows": (lambda _: load(observations=np.zeros((0, 3))), "no rows"),
    "too few rewards": (lambda _: load(rewards=np.zeros(ROWS - 1)), "199 rows but dataset"),
    "rewards of two columns": (lambda _: load(rewards=np.zeros((ROWS, 2))), "one value per row"),
    "nan in a reward": (lambda _: load(**bad("rewards", 7, np.nan)), "not finite in row 7"),
    "inf in an observation": (lambda _: load(**bad("observations", 3, np.inf)), "not finite in row 3"),
    "an observation of 1e300": (lambda _: load(**bad("observations", 3, 1e300)), "too large for float32"),
    "terminals that count": (lambda _: load(**bad("terminals", 5, 2.0)), "must be True or False, got 2.0 in row 5"),
    "text as actions": (lambda _: load(actions=np.full(ROWS, "left")), "must hold numbers"),
    "complex actions": (lambda _: load(actions=np.zeros((ROWS, 1), complex)), "must hold numbers"),
    "objects as observations": (
        lambda _: load(observations=np.array([None] * ROWS)), "must be an array with one row per step",
    ),
    "next observations of another shape": (
        lambda _: load(next_observations=np.zeros((ROWS, 2))), "must have the keys and shapes",
    ),
    "more rows than the buffer": (
        lambda _: made(capacity=100).load_dataset(PAST), "200 rows but the buffer a capacity of 100",
    ),
    "a second dataset that does not fit": (
        lambda _: loaded(capacity=300).load_dataset(PAST), "past data would be overwritten",
    ),
    "a second dataset of another shape": (
        lambda _: loaded().load_dataset(PAST | {"observations": np.zeros((ROWS, 4))}), "the buffer holds",
    ),
    "actions outside the bounds": (
        lambda _: loaded(action_bounds=(-0.5, 0.5)), "leaves the bounds .* in row",
    ),
    "an origin with a blank": (lambda _: made().load_dataset(PAST, origin="my demos"), "an origin is a word"),
    "extras that are not there": (lambda _: made().load_dataset(PAST, extras=["cost"]), "no column cost"),
    # ---- steps ----
    "arguments in the order of old gym": (
        lambda _: made().add(np.zeros(3), np.zeros(2), np.ones(3), 1.0, False), "returns obs, reward|one value per",
    ),
    "arguments in the order of SB3": (
        lambda _: made().add(np.zeros(3), np.ones(3), np.zeros(2), 1.0, False), "one value per|returns obs, reward",
    ),
    "infos for truncated": (lambda _: add({"truncated": {}}), "truncated must be"),
    "terminated as a count": (lambda _: add({"terminated": 3}), "terminated must be True or False"),
    "nan in an observation": (lambda _: add({"obs": np.full(3, np.nan)}), "obs has a value that is not finite"),
    "a reward of nan": (lambda _: add({"reward": np.nan}), "reward has a value that is not finite"),
    "a reward of None": (lambda _: add({"reward": None}), "reward must be"),
    "two rewards": (lambda _: add({"reward": np.zeros(2)}), "reward must be one value per"),
    "text as action": (lambda _: add({"action": "left"}), "action must hold numbers"),
    "a step's obs of another shape": (lambda _: add({}, {"obs": np.ones(4)}), "has shape"),
    "next_obs of another shape": (lambda _: add({"next_obs": np.ones(4)}), "next_obs has shape"),
    "an action of another shape": (lambda _: add({}, {"obs": np.ones(3), "action": np.zeros(3)}), "action has shape"),
    "whole numbers first, then halves": (
        lambda _: add({"obs": np.zeros(3, int), "next_obs": np.ones(3, int)}, {"obs": np.full(3, 0.5)}),
        "does not fit the int64 that came first: convert",
    ),
    "dict observations that lose a key": (
        lambda _: add({"obs": {"a": np.zeros(2)}, "next_obs": {"b": np.zeros(2)}}), "has the keys",
    ),
    "plain observations after dicts": (
        lambda _: add({"obs": {"a": np.zeros(3)}, "next_obs": {"a": np.zeros(3)}}, {}), "have the keys",
    ),
    "an action outside the bounds": (
        lambda _: add({"action": np.full(2, 1.1)}, action_bounds=(-1.0, 1.0)), "leaves the bounds",
    ),
    "done= as a further column": (lambda _: add({"done": True}), "'done' cannot be a further column"),
    "trunc= as a further column": (lambda _: add({"truncate": True}), "did you mean truncated"),
    "text as a further column": (lambda _: add({"note": "x"}), "note must hold numbers"),
    "rows of a batch through add": (
        lambda _: made().add(*(np.zeros((2, 3)), np.zeros((2, 2)), np.zeros(2), np.zeros((2, 3)), np.zeros(2, bool))),
        "reward must be one value per environment",
    ),
    "one step through add_batch": (lambda _: made().add_batch(**STEP), "one value per environment|one row per"),
    "actions of too few environments": (lambda _: add_batch(action=np.zeros((1, 2))), "action has shape"),
    "one environment twice": (lambda _: add_batch(envs=[0, 0]), "2 different environments"),
    "too few environments": (lambda _: add_batch(envs=[0]), "2 different environments"),
    "valid for others": (lambda _: add_batch(valid=[True]), "valid has shape"),
    "more environments than rows": (
        lambda _: made(capacity=1).add_batch(**ENVS), "do not fit a buffer with a capacity of 1",
    ),
    "next-step autoreset without truncated": (
        lambda _: made(autoreset="next_step").add_batch(**ENVS), "needs truncated",
    ),
    "resets stored as steps": (lambda _: resets(), "pass autoreset=envs"),
    "same-step autoreset without infos": (lambda _: resets(autoreset="same_step"), "pass infos=infos"),
    # ---- batches ----
    "a sample of nothing": (lambda _: made().sample(8), "empty buffer cannot be sampled"),
    "a sample of 0": (lambda _: loaded().sample(0), "a batch must be at least 1"),
    "a sample of -1": (lambda _: loaded().sample(-1), "a batch must be at least 1"),
    "a sample of 2.5": (lambda _: loaded().sample(2.5), "a batch must be a whole number"),
    "a sample in words": (lambda _: loaded().sample("8"), "a batch must be a whole number"),
    "a RandomState": (
        lambda _: loaded().sample(8, rng=np.random.RandomState(0)), "default_rng",
    ),
    "a seed for rng": (lambda _: loaded().sample(8, rng=0), "default_rng"),
    "n_step of 0": (lambda _: loaded().sample(8, n_step=0), "n_step must be at least 1"),
    "chunk of 0": (lambda _: loaded().sample(8, chunk=0), "chunk must be at least 1"),
    "length of 0": (lambda _: loaded().sample(8, length=0), "length must be at least 1"),
    "burn_in alone": (lambda _: loaded().sample(8, burn_in=3), "burn_in belongs to sequences"),
    "chunk and length": (lambda _: loaded().sample(8, chunk=2, length=2), "leave out"),
    "hindsight without goals": (
        lambda _: loaded().sample(8, hindsight=arb.Hindsight(lambda a, g: 0.0)), "'achieved_goal'",
    ),
    "a mask as rows": (lambda _: loaded().gather(np.ones(ROWS, bool)), "needs the numbers of rows"),
    "rows never written": (lambda _: loaded().gather([500]), "between 0 and 199"),
    "negative rows": (lambda _: loaded().gather([-1]), "between 0 and 199"),
    "rows beyond the ring": (lambda _: loaded().gather([1000]), "between 0 and 199"),
    "rows as floats": (lambda _: loaded().gather([0.5]), "needs the numbers of rows"),
    "batches for numpy": (lambda _: next(loaded().batches(1, 8, to="torch")), "the modules"),
    "statistics of nothing": (lambda _: made().stats(), "empty buffer cannot be described"),
    "priorities of others": (lambda _: loaded().update_priorities([0], [1.0]), "has no priorities"),
    "errors of nan": (lambda _: loaded(Prioritized()).update_priorities([0], [np.nan]), "is not finite"),
    "too few errors": (lambda _: loaded(Prioritized()).update_priorities([0, 1], [1.0]), "an error for each"),
    "an episode that is not there": (lambda _: loaded().remove(99), "there are 4 episodes"),
    # ---- scores ----
    "a refresh of nothing": (lambda _: made(ARB()).refresh(lambda obs, action: 0), "empty buffer cannot be"),
    "a score that was called": (lambda _: refresh(np.zeros(N)), "needs a function"),
    "scores in two columns": (lambda _: refresh(lambda obs, action: ZEROS), "one log-likelihood per row"),
    "one score for all": (lambda _: refresh(lambda obs, action: 0.0), "one log-likelihood per row"),
    "scores of nan": (lambda _: refresh(lambda obs, action: np.full(N, np.nan)), "the score is nan in row 0"),
    "no scores": (lambda _: refresh(lambda obs, action: None), "one log-likelihood per row"),
    "scores by something else": (
        lambda _: loaded(ARB()).refresh(lambda obs, action: np.zeros(N), by="episode"), "by must be 'row'",
    ),
    "no rows per call": (
        lambda _: loaded(ARB()).refresh(lambda obs, action: np.zeros(N), rows_per_call=0), "at least 1",
    ),
    "a network that wants tensors": (lambda _: refresh(linear()), "torch.as_tensor"),
    "only a mean": (lambda _: refresh(arb.gaussian_score(lambda obs: ZEROS)), "must return two arrays"),
    "a distribution": (lambda _: refresh(arb.gaussian_score(lambda obs: normal())), "must return two arrays"),
    "a mean of one dimension": (lambda _: mean(np.zeros((N, 1))), "return one mean for every action"),
    "a mean of the wrong rows": (lambda _: mean(np.zeros((1, 2))), "return one mean for every action"),
    "a width of three": (lambda _: mean(ZEROS, np.zeros(3)), "log_std has shape"),
    "a width of nothing": (lambda _: mean(ZEROS, -np.inf), "distance_score"),
    "an unknown likelihood": (lambda _: arb.gaussian_score(len, "densty"), "did you mean 'density'"),
    "one bound of two": (lambda _: arb.tanh_gaussian_score(len, low=-1.0), "both bounds"),
    "bounds that are too narrow": (
        lambda _: mean(ZEROS, make=arb.tanh_gaussian_score, low=-0.5, high=0.5), "the score's bounds",
    ),
    "logits for continuous actions": (
        lambda _: refresh(arb.categorical_score(lambda obs: np.zeros((N, 2, 3)))), "integer actions",
    ),
    "logits that are too few": (lambda _: logits(np.zeros((N, 1))), "choices, 0 to 0"),
    "a log-likelihood as policy": (lambda _: refresh(arb.distance_score(lambda obs: np.zeros(N))), "returned shape"),
    "no samples": (lambda _: arb.sample_score(len, n=0), "at least one sample"),
    "an odd number of draws": (lambda _: arb.flow_score(len, draws=3), "even number"),
    "a scale of 0": (lambda _: arb.distance_score(len, scale=0.0), "scale must be above 0"),
    # ---- files ----
    "half a file": (
        lambda path: restored(path, lambda file: file.write_bytes(file.read_bytes()[:500])), "is damaged",
    ),
    "a flipped bit": (lambda path: restored(path, flip), "is damaged"),
    "another file": (lambda path: restored(path, lambda file: np.savez(file, a=1)), "not saved by this library"),
    "junk": (lambda path: restored(path, lambda file: file.write_bytes(b"junk")), "not saved by this library"),
    "a pickle": (
        lambda path: restored(path, lambda file: file.write_bytes(pickle.dumps(1))), "not saved by this library",
    ),
    "another gamma": (lambda path: restored(path, id, gamma=0.9), "saved with gamma=0.99"),
    "another temperature": (lambda path: restored(path, id, sampler=ARB(0.5)), "has the sampler"),
    "another sampler": (lambda path: restored(path, id, sampler=Uniform()), "has the sampler"),
    "another capacity": (lambda path: restored(path, id, capacity=100), "capacity of 1000"),
    "a dataset for a buffer": (lambda path: saved_dataset(path), "saved in format arb dataset 1"),
    "a folder with other files": (lambda path: occupied(path), "holds other files"),
    "one folder in two buffers": (lambda path: twice(path), "is in use"),
}  # fmt: skip


def load_with(**options):
    return made(**options).load_dataset(PAST)


def resets(autoreset=None):
    """Every third step is that of next-step autoreset, from the last observation of an episode to the next first."""
    buffer, at = made(autoreset=autoreset), np.zeros((2, 3))
    for t in range(12):
        after, over = at + 1.0, t % 3 == 1
        buffer.add_batch(at, np.zeros((2, 2)), np.zeros(2), after, np.full(2, over), np.zeros(2, bool))
        at = after


def linear():
    torch = pytest.importorskip("torch")
    return lambda obs, action: torch.nn.Linear(3, 1)(obs)


def normal():
    torch = pytest.importorskip("torch")
    return torch.distributions.Normal(torch.zeros(N, 2), torch.ones(N, 2))


def logits(answer):
    buffer = made(ARB())
    buffer.load_dataset(PAST | {"actions": np.arange(ROWS) % 2})
    buffer.refresh(arb.categorical_score(lambda obs: answer))


def saved_dataset(path):
    arb.Dataset.from_dict(PAST).save(path / "past.npz")
    made().load(path / "past.npz")


def occupied(path):
    (path / "notes.txt").write_text("mine")
    made(storage=f"memmap:{path}")


def twice(path):
    first = made(storage=f"memmap:{path / 'rows'}")
    made(storage=f"memmap:{path / 'rows'}")
    del first


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mistake", SAID)
def test_it_gets_one_line(mistake, tmp_path):
    make, said = SAID[mistake]
    with pytest.raises(DataError, match=said) as caught:
        make(tmp_path)
    assert "\n" not in str(caught.value)


# ---- done, with a warning ------------------------------------------------------------------------------------------
def overwritten():
    buffer = loaded(capacity=ROWS)
    buffer.add(**STEP)


def forgotten():
    buffer = made(ARB(), capacity=20_000)
    for t in range(100):
        buffer.add_batch(
            *(np.full((100, 1), t + k) for k in (0, 0)), np.zeros(100), np.full((100, 1), t + 1), [False] * 100
        )
    buffer.sample(8)


def columns(*values):
    buffer = made()
    for t, value in enumerate(values):
        buffer.add([t], [0.0], 0.0, [t + 1], False, **value)


WARNED = {
    "no ends in 20,000 rows": (
        lambda: made(capacity=30_000).load_dataset({name: np.resize(np.zeros(1), (20_000, 1)) for name in PAST}),
        "taken for a single trajectory",
    ),
    "a reset without a flag": (lambda: add({}, {"obs": np.full(3, 9.0)}), "pass truncated=True when you reset"),
    "more steps than there is room for": (overwritten, "a capacity above 200"),
    "no refresh": (forgotten, "call refresh every 1,000 steps or so"),
    "scores in another unit": (
        lambda: loaded(ARB(0.5)).refresh(lambda obs, action: 1000.0 * obs[:, 0] + 50.0), 'pass temperature="auto"',
    ),
    "a count that is sometimes missing": (lambda: columns({"count": 1}, {}), "is 0 in rows that came without it"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WARNED)
def test_it_is_done_with_a_warning(mistake):
    make, said = WARNED[mistake]
    with pytest.warns(UserWarning, match=said) as caught:
        make()
    assert len(caught) == 1


# ---- simply right --------------------------------------------------------------------------------------------------
TRUTH = np.arange(ROWS, dtype=np.float32)[:, None]
WALK = {
    "observations": TRUTH,
    "actions": TRUTH,
    "rewards": np.ones(ROWS),
    "terminals": np.arange(ROWS) % 50 == 49,
    "next_observations": TRUTH + 1.0,
    "episode_ids": np.arange(ROWS) // 50,
}
"""A walk to the right: every row leads from its number to the next one."""


def walk(rows=slice(None), **changes):
    buffer = made(gamma=1.0)
    buffer.load_dataset({name: column[rows] for name, column in (WALK | changes).items() if column is not None})
    return buffer


def leads_on(rows):
    """Whether what was given for the rows is what comes out, also over several steps."""
    buffer = walk(rows)
    one, several = buffer.gather(np.arange(len(buffer))), buffer.gather(np.arange(len(buffer)), n_step=4)
    return (one.next_obs == one.obs + 1).all() and (several.next_obs - several.obs == several.reward[:, None]).all()


def trajectories(**flags):
    data = {name: column for name, column in WALK.items() if name not in ("episode_ids", "next_observations")}
    return made().load_dataset(data | {"terminals": np.zeros(ROWS)} | flags).trajectories == 4


def grid_world():
    """An 8 x 8 grid; an episode may begin where the last one ended."""
    rng, buffer, at = np.random.default_rng(0), made(capacity=10_000), np.array([0, 0])
    for t in range(5000):
        after = np.clip(at + rng.integers(-1, 2, size=2), 0, 7)
        over, cut = bool((after == 7).all()), t % 30 == 29
        buffer.add(at, rng.integers(4), 0.0, after, over, cut)
        at = rng.integers(8, size=2) if over or cut else after
    return len(buffer) == 5000


def reused():
    """An environment that returns the same array every time."""
    buffer, state = made(), np.zeros(1)
    for t in range(10):
        before = state.copy()
        state += 1.0
        buffer.add(before, [0.0], 0.0, state, t == 9)
    return buffer.gather(np.arange(10)).next_obs.ravel().tolist() == list(range(1, 11))


def alike(other):
    buffer = loaded(ARB())
    return (other(buffer).sample(64).obs == buffer.sample(64).obs).all()


def weighed(score):
    buffer = loaded(ARB("auto"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer.refresh(score)
    return abs(buffer.stats()["effective_share"] - 0.25) < 0.01


def with_torch(score):
    torch = pytest.importorskip("torch")
    return weighed(lambda obs, action: score(torch, torch.tensor(obs, requires_grad=True)))


HANDLED = {
    "a tenth of the rows was dropped": lambda: leads_on(np.random.default_rng(0).random(ROWS) < 0.9),
    "every second row was dropped": lambda: leads_on(slice(None, None, 2)),
    "rows were shuffled": lambda: leads_on(np.random.default_rng(0).permutation(ROWS)),
    "a filter without episode_ids": lambda: (
        walk(slice(None, None, 2), episode_ids=None).gather(np.arange(100)).next_obs[:, 0] == TRUTH[::2, 0] + 1
    ).all(),
    "truncations for timeouts": lambda: trajectories(truncations=np.arange(ROWS) % 50 == 49),
    "truncated for timeouts": lambda: trajectories(truncated=np.arange(ROWS) % 50 == 49),
    "timeout for timeouts": lambda: trajectories(timeout=np.arange(ROWS) % 50 == 49),
    "dones beside terminals": lambda: trajectories(dones=np.arange(ROWS) % 50 == 49),
    "columns that nobody knows": lambda: walk(cost=TRUTH).gather([7]).extras["cost"].tolist() == [[7.0]],
    "all further columns by name": lambda: (
        made().load_dataset(PAST | {"cost": np.ones(ROWS)}, extras=["cost"]).rows > 0
    ),
    "columns of other lengths": lambda: "info" not in walk().gather([0]).extras,
    "goals that differ where jumps are allowed": lambda: jumps_kept(),
    "lists as rows": lambda: walk().gather([3, 4]).obs.ravel().tolist() == [3.0, 4.0],
    "rows of any shape": lambda: walk().gather([[3, 4], [5, 6]]).obs.shape == (2, 2, 1),
    "a grid world": grid_world,
    "an environment that reuses its arrays": reused,
    "29 of 100": lambda: online_of(Mixed(0.29)) == 71,
    "an action of 1.0000001": lambda: len(add({"action": np.full(2, 1.0000001)}, action_bounds=(-1.0, 1.0))) == 1,
    "a score plus 50": lambda: weighed(lambda obs, action: obs[:, 0] + 50.0),
    "a score times 1,000": lambda: weighed(lambda obs, action: 1000.0 * obs[:, 0]),
    "scores with gradients": lambda: with_torch(lambda torch, obs: obs[:, 0]),
    "scores in one column": lambda: with_torch(lambda torch, obs: obs[:, :1]),
    "scores in half precision": lambda: weighed(lambda obs, action: obs[:, 0].astype(np.float16)),
    "actions at the bounds of tanh": lambda: at_bounds(),
    "a width that does not matter": lambda: widths(),
    "a deterministic policy": lambda: weighed(arb.distance_score(lambda obs: obs[:, :2])),
    "a score that knows no limit": lambda: weighed(lambda obs, action: -np.exp(4.0 * obs[:, 0])),
    "bytes as observations": lambda: kept(np.zeros((4, 4, 1), np.uint8), np.uint8),
    "whole numbers as observations": lambda: kept(np.zeros(2, int), np.int64),
    "flags as observations": lambda: kept(np.zeros(2, bool), np.bool_),
    "half precision": lambda: kept(np.zeros(2, np.float16), np.float32),
    "a number as observation": lambda: kept(0.5, np.float32),
    "lists as observations": lambda: kept([0.5, 1.0], np.float32),
    "dicts as observations": lambda: kept({"a": np.zeros(2), "b": np.zeros((2, 2))}, None),
    "tuples as observations": lambda: kept((np.zeros(2), np.zeros(3)), None),
    "nested dicts as observations": lambda: kept({"a": {"b": np.zeros(2)}, "c": (np.zeros(1), np.zeros(1))}, None),
    "rewards in one column": lambda: made().load_dataset(PAST | {"rewards": np.zeros((ROWS, 1))}).rows == ROWS,
    "flags as floats": lambda: made().load_dataset(PAST | {"terminals": np.zeros(ROWS)}).rows == ROWS - 1,
    "a column of None": lambda: made().load_dataset(PAST | {"timeouts": None}).rows == ROWS,
    "statistics as JSON": lambda: json.dumps(loaded().stats()) is not None,
    "a deep copy": lambda: alike(copy.deepcopy),
    "a pickle": lambda: alike(lambda buffer: pickle.loads(pickle.dumps(buffer))),
    "sizes of NumPy": lambda: loaded().sample(np.int32(8)).obs.shape == (8, 3),
    "many batches": lambda: loaded().sample((5, 8)).obs.shape == (5, 8, 3),
    "no batches": lambda: list(loaded().batches(0, 8)) == [],
    "an episode of nobody is ended": lambda: made().end_episode(env=7) is None,
    "nothing is removed": lambda: loaded().remove([]) == 0,
    "everything is removed": lambda: loaded().clear() is None,
    "an empty buffer's episodes": lambda: len(made().episodes()) == 0,
    "terminated and truncated": lambda: add({"terminated": True, "truncated": True}).gather([0]).mask.tolist() == [0.0],
    "a time limit is bootstrapped": lambda: add({"truncated": True}).gather([0]).mask.tolist() == [1.0],
    "refresh without need": lambda: loaded().refresh(lambda obs, action: None) is None,
    "equal seeds": lambda: (loaded().sample(64).obs == loaded().sample(64).obs).all(),
    "n steps beyond the end": lambda: walk().gather([48], n_step=9).reward.tolist() == [2.0],
}


def jumps_kept():
    buffer, goal = made(discontinuity=None), 10.0 * np.arange(6)
    for t in range(5):
        buffer.add([goal[t]], [0.0], 0.0, [goal[t] + 3.0], terminated=t == 4)
    return (buffer.gather(np.arange(5)).next_obs[:, 0] == goal[:5] + 3.0).all()


def online_of(sampler):
    buffer = loaded(sampler)
    buffer.add(**STEP)
    return int(buffer.index.is_online(buffer.sample_indices(100)).sum())


def at_bounds():
    buffer = made(ARB())
    buffer.load_dataset(PAST | {"actions": np.sign(PAST["actions"])})
    buffer.refresh(arb.tanh_gaussian_score(lambda obs: (2.5 * np.sign(obs[:, :2]), np.log(0.5))))
    return buffer.stats()["clipped_low"] < 0.5


def widths():
    def shares(width):
        buffer = loaded(ARB())
        buffer.refresh(arb.gaussian_score(lambda obs: (obs[:, :2], np.log(width))))
        return buffer.sampler.probabilities()

    return np.allclose(shares(0.1), shares(1.0), rtol=1e-3)


def kept(obs, dtype):
    buffer = made()
    for _ in range(3):
        buffer.add(obs, 0, 0.0, obs, terminated=True)
    batch = buffer.sample(8)
    return len(batch.reward) == 8 and (dtype is None or batch.obs.dtype == batch.next_obs.dtype == dtype)


@pytest.mark.parametrize("mistake", HANDLED)
def test_it_works(mistake):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert HANDLED[mistake]()
