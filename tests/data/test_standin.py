"""What stands in for a task: recorded here, the same every time, and never to be taken for D4RL's data."""

import numpy as np
import pytest

from arb import DataError
from arb.data import fingerprint, read
from arb.data.load import locate
from arb.tasks import task_of


def test_a_stand_in_is_recorded_once_and_equal_everywhere(tmp_path, monkeypatch):
    found = []
    for place in ("one", "other"):
        monkeypatch.setenv("ARB_CACHE", str(tmp_path / place))
        found.append(read("stand-in:hopper-medium-v2"))
    assert fingerprint(found[0].columns) == fingerprint(found[1].columns)
    assert len(found[0].columns["rewards"]) > 1000
    assert np.count_nonzero(found[0].columns["terminals"]) > 1
    assert found[0].attributes["made_by"] == "uniformly random actions"
    assert found[0].attributes["env"] == "arb/hopper-v2"
    _, path = locate("stand-in:hopper-medium-v2")
    assert path.startswith(str(tmp_path / "other"))
    assert task_of(path) is None  # its file is not called like D4RL's


def test_tasks_have_stand_ins_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("ARB_CACHE", str(tmp_path))
    one, other = (read(f"stand-in:hopper-{quality}-v2") for quality in ("random", "medium"))
    assert fingerprint(one.columns) != fingerprint(other.columns)
    with pytest.raises(DataError, match="did you mean"):
        read("stand-in:hopper-medum-v2")
