"""examples/arb_in_one_file.py runs, stands alone, and samples as the library does."""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import arb

SCRIPT = Path(__file__).parent.parent / "examples" / "arb_in_one_file.py"


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    spec = importlib.util.spec_from_file_location("arb_in_one_file", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_imports_nothing_from_the_package():
    nodes = list(ast.walk(ast.parse(SCRIPT.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.partition(".")[0] == "arb"}


def test_a_quick_run_samples_as_the_library_does(script, capsys):
    """Both buffers hold the rows of the run; the same policy scores them."""
    agent, mine = script.main(script.Args(quick=True))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["offline", "online"]
    n, offline = mine.size, int((~mine.online[: mine.size]).sum())
    assert (n, offline) == (1400, 1000)

    ends = np.diff(mine.trajectory[:n], append=mine.trajectories) > 0
    past = {
        "observations": mine.obs[:offline],
        "actions": mine.action[:offline],
        "rewards": mine.reward[:offline],
        "next_observations": mine.next_obs[:offline],
        "terminals": mine.mask[:offline] == 0,
        "timeouts": ends[:offline],
    }
    for temperature in ("auto", 0.5):
        mine.refresh(agent.log_likelihood, script.Args(temperature=str(temperature)))
        probabilities = np.diff(mine.cumulative, prepend=0.0)
        library = arb.ReplayBuffer(n, arb.ARB(temperature))
        library.load_dataset(past)
        for i in range(offline, n):
            row = mine.obs[i], mine.action[i], mine.reward[i], mine.next_obs[i]
            library.add(*row, terminated=mine.mask[i] == 0, truncated=bool(ends[i]))
        library.refresh(agent.log_likelihood)
        np.testing.assert_allclose(probabilities, library.sampler.probabilities(), rtol=0.0, atol=1e-9)
        assert probabilities.max() > 1.2 * probabilities.min()  # the comparison is of weights that differ


@pytest.mark.parametrize("temperature", ["auto", 0.1, 0.5, 5.0])
def test_probabilities_are_the_library_s_on_any_scores(script, temperature):
    """Episodes of 1 to 60 steps, and scores beyond both clip bounds."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 60, size=80)
    n = int(lengths.sum())
    ends = np.isin(np.arange(1, n + 1), np.cumsum(lengths))
    scores = np.repeat(rng.normal(-5.0, 4.0, size=80), lengths) + rng.normal(0.0, 6.0, size=n)
    scores[::50] *= 100.0
    scores = scores.astype(np.float32)
    assert scores.min() < -12.0
    assert scores.max() > 7.0

    obs = np.arange(n, dtype=np.float32)[:, None]
    library = arb.ReplayBuffer(n, arb.ARB(temperature))
    library.load_dataset({"observations": obs, "actions": obs, "rewards": obs[:, 0], "terminals": ends})
    library.refresh(lambda _obs, action: scores[action[:, 0].astype(int)])
    trajectory = np.append(0, np.cumsum(ends)[:-1])
    mine, _ = script.sampling_probabilities(scores, trajectory, script.Args(temperature=str(temperature)))
    np.testing.assert_allclose(mine, library.sampler.probabilities(), rtol=0.0, atol=1e-9)


def test_a_dataset_without_next_observations_leaves_out_what_cannot_be_bootstrapped(script):
    """Two episodes: one cut off after three rows, one that ends the task after two."""
    data = {
        "observations": np.arange(5.0)[:, None],
        "actions": np.zeros((5, 1)),
        "rewards": np.ones(5),
        "terminals": np.array([0, 0, 0, 0, 1]),
        "timeouts": np.array([0, 0, 1, 0, 0]),
    }
    buffer = script.ReplayBuffer(10, 1, 1)
    buffer.load_dataset(data)
    assert buffer.size == 4
    assert buffer.obs[:4, 0].tolist() == [0.0, 1.0, 3.0, 4.0]
    assert buffer.next_obs[:3, 0].tolist() == [1.0, 2.0, 4.0]
    assert buffer.trajectory[:4].tolist() == [0, 0, 1, 1]
    assert buffer.mask[:4].tolist() == [1.0, 1.0, 1.0, 0.0]


def test_a_file_is_read(script, tmp_path):
    columns = {"observations": np.ones((3, 2), np.float32), "rewards": np.ones(3)}
    with pytest.importorskip("h5py").File(tmp_path / "some.hdf5", "w") as file:
        for name, column in columns.items():
            file[name] = column
        file["infos/goal"] = np.zeros(3)  # D4RL's files have groups beside the columns
    found = script.read_dataset(tmp_path / "some.hdf5")
    assert found.keys() == columns.keys()
    assert (found["observations"] == 1.0).all()
