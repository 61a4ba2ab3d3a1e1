from __future__ import annotations

import pytest

from arb.data.audit import audit
from arb.data.fetch import BUNDLED, bundled, bundled_names
from arb.data.tasks import env_reference, normalised

from .recordings import load

pytest.importorskip("h5py")


def test_there_are_two_to_learn_from_and_one_for_tests() -> None:
    assert bundled_names() == ["hopper-mixed", "hopper-tiny", "pendulum-random"]
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) < 6_000_000


@pytest.mark.parametrize("name", bundled_names())
def test_they_are_sound_and_say_how_they_were_made(name: str) -> None:
    assert audit(bundled(name)).verdict == "no fault found"
    attributes = load(bundled(name)).provenance
    assert attributes["env"] == ("Pendulum-v1" if name == "pendulum-random" else "arb/hopper-v2")
    assert attributes["command"].startswith(f"arb data collect {attributes['env']} ")
    assert f"--out {name}.hdf5" in attributes["command"]
    assert "mujoco" in attributes["versions"]
    assert attributes["made_by"]


def test_the_mixed_set_is_poor_on_average_and_has_a_few_very_good_episodes() -> None:
    data = load(bundled("hopper-mixed"))
    reference = env_reference("arb/hopper-v2")
    assert reference is not None
    scores = normalised(data.episode_returns, reference)
    assert len(data) > 90_000
    assert scores.mean() < 15
    assert 20 <= (scores > 85).sum() <= 50
