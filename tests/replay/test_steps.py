"""Steps that cannot be used: each is refused in one sentence, and the buffer stays as it was."""

import numpy as np
import pytest

from arb import DataError, ReplayBuffer, Uniform

GOOD = {"obs": np.zeros(3), "action": 0, "reward": 1.0, "next_obs": np.zeros(3), "terminated": False}
BAD = {
    "two rewards": ({"reward": np.ones(2)}, "reward must be one value per environment"),
    "no number": ({"reward": "much"}, "reward must be one number"),
    "no reward": ({"reward": None}, "reward must be one number per environment, got dtype object"),
    "longer next_obs": ({"next_obs": np.ones(4)}, r"next_obs has shape \(4,\) per step, but the buffer holds \(3,\)"),
    "one next_obs": ({"next_obs": np.ones(1)}, r"next_obs has shape \(1,\)"),
    "complex next_obs": ({"next_obs": np.ones(3, complex)}, "next_obs must hold numbers, got dtype complex128"),
    "nan in next_obs": ({"next_obs": np.full(3, np.nan)}, "next_obs has a value that is not finite"),
    "no next_obs": ({"next_obs": None}, "next_obs must hold numbers"),
    "dict as next_obs": ({"next_obs": {"a": np.ones(3)}}, "next_obs"),
    "word in obs": ({"obs": {"a": {"b": "x"}}, "next_obs": {"a": {"b": "x"}}}, "must hold numbers"),
    "no action": ({"action": None}, "action must hold numbers"),
    "info as truncated": ({"truncated": {}}, r"truncated must be True or False, got \{\}.*terminated, truncated, info"),
    "info with a word": ({"truncated": {"TimeLimit.truncated": True}}, "truncated must be True or False, got"),
    "word": ({"terminated": "False"}, "terminated must be True or False, got 'False'"),
    "two": ({"terminated": 2}, "terminated must be True or False, got 2"),
    "half": ({"terminated": 0.5}, "got 0.5"),
    "two flags": ({"terminated": [True, False]}, "terminated must be one value per environment"),
}
LATER = {
    "longer obs": ({"obs": np.ones(4), "next_obs": np.ones(4)}, "obs has shape"),
    "two actions": ({"action": np.array([0, 1])}, "action has shape"),
    "continuous action": ({"action": 0.5}, "action has dtype"),
}


def everything(buffer):
    """All that decides what the buffer does from here on, as plain values."""
    header, parts = buffer.index.state()
    arrays = {name: {key: array.tolist() for key, array in part.items()} for name, part in parts.items()}
    held = {key: array.tolist() for key, array in buffer.storage.state(slice(None)).items()}
    return len(buffer), header, arrays, held


@pytest.mark.parametrize(("change", "said"), BAD.values(), ids=BAD)
def test_a_refused_first_step_leaves_the_buffer_empty(change, said):
    buffer = ReplayBuffer(5, Uniform(), seed=0)
    before = everything(buffer)
    with pytest.raises(DataError, match=said):
        buffer.add(**{**GOOD, **change})
    assert everything(buffer) == before


@pytest.mark.parametrize(("change", "said"), (BAD | LATER).values(), ids=BAD | LATER)
@pytest.mark.parametrize("held", [2, 7])
def test_a_refused_step_leaves_the_buffer_as_it_was(change, said, held):
    buffer = ReplayBuffer(5, Uniform(), seed=0)
    for _ in range(held):
        buffer.add(**GOOD)
    before = everything(buffer)
    with pytest.raises(DataError, match=said):
        buffer.add(**{**GOOD, "obs": np.ones(3), **change})  # a jump, which would end the trajectory
    assert everything(buffer) == before
    buffer.add(**GOOD)
    buffer.sample(8)


@pytest.mark.parametrize("rows", [3, 1])
def test_valid_needs_one_flag_per_environment(rows):
    buffer = ReplayBuffer(5, Uniform(), seed=0)
    with pytest.raises(DataError, match=f"valid has shape .{rows},., but 2 rewards"):
        buffer.add_batch(np.zeros((2, 3)), np.zeros(2), np.ones(2), np.zeros((2, 3)), np.zeros(2), valid=[True] * rows)


@pytest.mark.parametrize("over", [True, 1, 1.0, np.True_, np.float32(1), np.array([True])])
def test_what_may_say_yes(over):
    buffer = ReplayBuffer(5, Uniform(), seed=0)
    buffer.add(**{**GOOD, "reward": np.array([3.0]), "terminated": over})
    batch = buffer.gather(np.array([0]))
    assert batch.reward.tolist() == [3.0]
    assert batch.mask.tolist() == [0.0]


def test_tensors_are_numbers_too():
    torch = pytest.importorskip("torch")
    buffer = ReplayBuffer(5, Uniform(), seed=0)
    zeros, no = torch.zeros(3), torch.tensor(False)
    buffer.add(zeros, torch.tensor(1), torch.tensor([1.0]), zeros, no, torch.tensor([True]))
    buffer.add_batch(zeros[None], torch.zeros(1, dtype=int), torch.ones(1, 1), zeros[None], no[None], no[None, None])
    assert len(buffer) == 2


@pytest.mark.parametrize("name", ["action", "terminated", "truncated", "obs", "next_obs", "valid"])
def test_columns_of_another_length_are_refused(name):
    buffer = ReplayBuffer(9, Uniform(), seed=0)
    step = {"obs": np.zeros((2, 3)), "action": np.zeros((2, 1)), "reward": np.zeros(2), "next_obs": np.ones((2, 3)),
            "terminated": [False] * 2, "truncated": [False] * 2, "valid": [True] * 2}  # fmt: skip
    with pytest.raises(DataError, match=f"^{name} has .*2 rewards were given: one"):
        buffer.add_batch(**step | {name: [*step[name], step[name][0]]})
    assert len(buffer) == 0
