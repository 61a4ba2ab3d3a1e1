"""A state that does not fit is refused in one sentence, before anything has changed."""

import json
import os
import warnings

import numpy as np
import pytest

from arb import ARB, DataError, Mixed, ReplayBuffer, Uniform
from arb.files import flattened, read_state, write_npz, write_state

TRIES = int(os.environ.get("ARB_FUZZ", "60"))
"""Altered states to try; ARB_FUZZ=2000 for a long search."""


def data(n=40, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    return {
        "observations": rng.normal(size=(n, 3)) + shift,
        "actions": rng.uniform(-1, 1, (n, 2)),
        "rewards": rng.normal(size=n),
        "terminals": np.arange(n) % 8 == 7,
    }


def score(obs, action):
    return np.cos(obs[:, 0]) - 3.0


def made(capacity=90, sampler=None, **kwargs):
    return ReplayBuffer(capacity, sampler or ARB(0.5), **({"seed": 0} | kwargs))


def filled(buffer, steps=30):
    """With past trajectories and three environments that take turns, one of which has just ended an episode."""
    buffer.load_dataset(data())
    for t in range(steps):
        obs = np.array([[t, e, 0.0] for e in range(3)]) + 100.0 * (t // 10)
        over = np.full(3, t % 10 == 9) & (np.arange(3) < 2 + (t < 20))
        step = (obs, np.zeros((3, 2)), np.ones(3), obs + np.eye(3)[0], np.zeros(3), over | (t % 10 == 9) & (t < 25))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            buffer.add_batch(*(x[:2] if t % 7 == 6 else x for x in step), envs=[4, 0, 1][: 2 if t % 7 == 6 else 3])
        if t == 15:
            buffer.refresh(score)
    return buffer


def everything(buffer):
    """All that decides what the buffer does from here on, as plain values."""
    header, parts = buffer.index.state()
    arrays = {name: {key: np.asarray(array).tolist() for key, array in part.items()} for name, part in parts.items()}
    held = {key: array.tolist() for key, array in buffer.storage.state(slice(None)).items()}
    following = buffer.index.next_index.tolist()
    return repr((header, arrays, held, following, list(buffer._ended), buffer._loaded, buffer._offline))


def change_array(rng, array):
    """One way in which an array is no longer what it was."""
    array = np.array(array)
    ways = [lambda: array[:-1], lambda: np.concatenate([array, array[-1:]]), lambda: array[None]] if array.ndim else []
    ways += [
        lambda: array.astype(np.float16 if array.dtype != np.float16 else np.int8),
        lambda: array.astype(np.complex128),
        lambda: np.array("text"),
        lambda: array.reshape(-1)[:0],
    ]
    if array.size:
        places = rng.integers(array.size, size=max(1, array.size // 20))
        for value in (-1, -(2**31), 2**31 - 1, 10**6):
            ways.append(lambda value=value: put(array, places, value))
        if array.dtype.kind == "f":
            ways += [lambda: put(array, places, np.nan), lambda: put(array, places, np.inf)]
    return ways[rng.integers(len(ways))]()


def put(array, places, value):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        array.reshape(-1)[places] = np.array(value).astype(array.dtype)
    return array


def change_header(rng, header):
    name = sorted(header)[rng.integers(len(header))]
    values = [None, -1, 1.5, "x", [], {}, True, 10**30, [None, None], ["", -1, 2]]
    if rng.random() < 0.3:
        del header[name]
    elif isinstance(header[name], dict) and rng.random() < 0.7:
        change_header(rng, header[name])
    else:
        header[name] = values[rng.integers(len(values))]


def altered(rng, header, parts):
    """A state that is no longer what `save` wrote, and what was done to it."""
    if rng.random() < 0.25:
        before = str(header)
        change_header(rng, header)
        return f"header {before} -> {header}" if str(header) != before else None
    part = sorted(parts)[rng.integers(len(parts))]
    if rng.random() < 0.1 or not parts[part]:
        return f"without {part}" if parts.pop(part) else None
    name = sorted(parts[part])[rng.integers(len(parts[part]))]
    kind = rng.random()
    if kind < 0.15:
        del parts[part][name]
        return f"without {part}/{name}"
    if kind < 0.25:
        parts[part][f"{name}.more"] = parts[part][name]
        return f"more in {part}/{name}"
    before = parts[part][name]
    after = parts[part][name] = change_array(rng, before)
    same = after.dtype == before.dtype and np.array_equal(after, before, equal_nan=before.dtype.kind == "f")
    return None if same else f"{part}/{name} {before.dtype}{before.shape} -> {after.dtype}{after.shape}"


@pytest.mark.parametrize("sampler", [lambda: ARB(0.5), lambda: ARB("auto", level="transition"), Mixed])
def test_altered_states_are_refused_and_change_nothing(tmp_path, sampler):
    filled(made(sampler=sampler())).save(tmp_path / "sound.npz")
    header, parts = read_state(tmp_path / "sound.npz")
    buffer = filled(made(sampler=sampler(), seed=7), steps=12)
    before, rng, path = everything(buffer), np.random.default_rng(0), tmp_path / "altered.npz"
    for _ in range(TRIES // 3):
        changed = {**header, "made": dict(header["made"]), "rng": dict(header["rng"])}
        groups = {part: dict(group) for part, group in parts.items()}
        what = altered(rng, changed, groups)
        if what is None:
            continue
        write_with_sum_of(tmp_path / "sound.npz", path, changed, groups)
        said = refusal(buffer, path)
        assert said, what
        assert "\n" not in said, what
        assert everything(buffer) == before, what
    buffer.load(tmp_path / "sound.npz")
    assert (buffer.sample_indices(50) == made_again(tmp_path, sampler).sample_indices(50)).all()


def write_with_sum_of(sound, path, header, parts):
    """Write another state under the checksum of a sound file; None leaves the checksum out."""
    with np.load(sound) as file:
        saved = json.loads(file["header.json"].tobytes())
    said = {"header": header} | ({"checksum": saved["checksum"]} if header is not None else {})
    write_npz(path, {"header.json": np.frombuffer(json.dumps(said).encode(), np.uint8), **flattened(parts)})


def test_a_file_without_a_checksum_is_refused(tmp_path):
    filled(made()).save(tmp_path / "sound.npz")
    write_with_sum_of(tmp_path / "sound.npz", tmp_path / "none.npz", None, {})
    assert "has no checksum: it is damaged, or was saved by another version" in refusal(made(), tmp_path / "none.npz")


def test_one_changed_number_is_refused(tmp_path):
    buffer = filled(made())
    buffer.save(tmp_path / "sound.npz")
    header, parts = read_state(tmp_path / "sound.npz")
    for part, name in (("storage", "column.reward"), ("sampler", "log_weight"), ("index", "episode_ids")):
        changed = np.array(parts[part][name])
        changed[1] += 1
        groups = {**parts, part: {**parts[part], name: changed}}
        write_with_sum_of(tmp_path / "sound.npz", tmp_path / "changed.npz", header, groups)
        assert "damaged" in refusal(made(), tmp_path / "changed.npz"), name
    changed = header | {"drawn_since_refresh": 7}
    write_with_sum_of(tmp_path / "sound.npz", tmp_path / "changed.npz", changed, parts)
    assert "damaged" in refusal(made(), tmp_path / "changed.npz")


def refusal(buffer, path):
    try:
        buffer.load(path)
    except DataError as said:
        return str(said)
    return ""


def made_again(tmp_path, sampler):
    other = made(sampler=sampler())
    other.load(tmp_path / "sound.npz")
    return other


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        (
            {"sampler": ARB(0.6)},
            r"has the sampler ARB\(temperature=0.5\), this one has ARB\(temper.*0.6\)",
        ),
        ({"sampler": ARB(0.5, level="transition")}, "this one has ARB.*level='transition'"),
        ({"sampler": Uniform()}, r"this one has Uniform\(\)"),
        ({"gamma": 0.9}, "saved with gamma=0.99, and this buffer has gamma=0.9"),
        ({"boundaries": "terminals"}, "saved with boundaries=resets, and this buffer has boundaries=terminals"),
        ({"failure_reward": -1.0}, "failure_reward=None, and this buffer has failure_reward=-1.0"),
        ({"discontinuity": None}, "discontinuity=1e-06, and this buffer has discontinuity=None"),
        ({"action_bounds": (-1.0, 1.0)}, "action_bounds=None, and this buffer has"),
        ({"autoreset": "next_step"}, "autoreset=None, and this buffer has autoreset=next_step"),
        ({"capacity": 89}, "capacity of 90, this one of 89"),
        ({"capacity": 91}, "capacity of 90, this one of 91"),  # rows have been overwritten, so it cannot grow
    ],
)
def test_a_buffer_made_otherwise_is_refused(tmp_path, kwargs, said):
    filled(made()).save(tmp_path / "buffer.npz")
    other = filled(made(**{"seed": 5, **kwargs}), steps=3)
    before = everything(other)
    with pytest.raises(DataError, match=said):
        other.load(tmp_path / "buffer.npz")
    assert everything(other) == before


def test_another_dataset_of_the_same_size_is_refused(tmp_path):
    buffer = made()
    rows = buffer.load_dataset(data()).rows
    buffer.add(np.zeros(3), np.zeros(2), 0.0, np.ones(3), terminated=False)
    buffer.save(tmp_path / "online.npz", since=rows)
    other = made()
    other.load_dataset(data(seed=1))
    before = everything(other)
    with pytest.raises(DataError, match="another one of the same size was loaded"):
        other.load(tmp_path / "online.npz")
    assert everything(other) == before
    same = made()
    same.load_dataset(data())
    same.load(tmp_path / "online.npz")
    assert (same.sample_indices(9) == buffer.sample_indices(9)).all()


@pytest.mark.parametrize("other", [{"observations": np.zeros((40, 4))}, {"actions": np.zeros((40, 1))}])
def test_other_sizes_are_refused(tmp_path, other):
    filled(made()).save(tmp_path / "buffer.npz")
    buffer = made()
    buffer.load_dataset(data() | other)
    before = everything(buffer)
    with pytest.raises(DataError, match="of the saved buffer has shape"):
        buffer.load(tmp_path / "buffer.npz")
    assert everything(buffer) == before


@pytest.mark.parametrize("sampler", [lambda: ARB(0.5), Mixed])
def test_a_buffer_grows_as_long_as_nothing_was_overwritten(tmp_path, sampler):
    small, large = made(140, sampler()), made(500, sampler())
    filled(small).save(tmp_path / "small.npz")
    large.load(tmp_path / "small.npz")
    assert (small.sample_indices((4, 20)) == large.sample_indices((4, 20))).all()
    for t in range(100):
        large.add(np.full(3, 900.0 + t), np.zeros(2), 0.0, np.full(3, 901.0 + t), terminated=False, env=9)
    assert len(large) > 140


def test_earlier_formats_are_refused(tmp_path):
    write_state(tmp_path / "old.npz", {"format": 1, "sampler": "ARB"}, {})
    with pytest.raises(DataError, match="saved in format 1, and this version reads format 4"):
        made().load(tmp_path / "old.npz")


@pytest.mark.parametrize("loaded", [False, True], ids=["whole", "without the dataset"])
def test_a_restored_buffer_goes_on_step_by_step(tmp_path, loaded):
    def begun():
        buffer = made(300)
        return buffer, buffer.load_dataset(data()).rows

    def go_on(buffer, start, steps):
        for t in range(start, start + steps):
            obs = np.array([t, 0, 0], np.float32)
            buffer.add(obs, np.zeros(2, np.float32), 1.0, obs + np.eye(3, dtype=np.float32)[0], terminated=False)

    buffer, rows = begun()
    go_on(buffer, 0, 10)
    buffer.save(tmp_path / "buffer.npz", since=rows if loaded else 0)
    other = begun()[0] if loaded else made(300)
    other.load(tmp_path / "buffer.npz")
    for one in (buffer, other):
        go_on(one, 10, 5)
        assert one.gather(np.arange(rows, rows + 15)).next_obs[:, 0].tolist() == list(range(1, 16))
    assert everything(buffer) == everything(other)


def test_an_open_episode_whose_rows_are_gone_goes_on_after_a_restore(tmp_path):
    def step(buffer, env, t):
        buffer.add(
            np.array([t], np.float32), np.zeros(1, np.float32), 1.0, np.array([t + 1], np.float32), False, env=env
        )

    buffer = made(4)
    step(buffer, 0, 0.0)
    for t in range(5):
        step(buffer, 1, 100.0 + t)
    step(buffer, 2, 500.0)
    buffer.save(tmp_path / "buffer.npz")
    other = made(4)
    other.load(tmp_path / "buffer.npz")
    for one in (buffer, other):
        step(one, 0, 1.0)  # goes on from where it was, although no row of it is left
        step(one, 1, 105.0)
        assert one.stats()["trajectories"] == 3
    assert everything(buffer) == everything(other)
