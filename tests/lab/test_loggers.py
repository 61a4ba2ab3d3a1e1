"""The metrics of a run reach TensorBoard and Weights & Biases, each only where it was asked for."""

import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from arb import DataError
from arb.lab.folder import RunFolder
from arb.lab.metrics import with_loggers
from arb.lab.training import run
from tests.lab import tiny


def told_into(told):
    return lambda *arguments: told.append(arguments)


def events(folder):
    """What a TensorBoard file holds: a length, its check sum, an event and its check sum, again and again."""
    (path,) = (folder / "tensorboard").iterdir()
    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event = Event.FromString(content[12 : 12 + length])
        yield from ((event.step, value.tag, value.simple_value) for value in event.summary.value)
        content = content[16 + length :]


def test_tensorboard_gets_every_metric_at_its_step(tmp_path):
    told = []
    with with_loggers(told_into(told), tmp_path, {}, tensorboard=True, wandb=None) as tell:
        tell("pretrain", 20, 40, {"score": 1.5})
        tell("online", 40, 60, {"score": 2.5, "online_share": 0.25})
    assert told == [("pretrain", 20, 40, {"score": 1.5}), ("online", 40, 60, {"score": 2.5, "online_share": 0.25})]
    expected = [(20, "pretrain/score", 1.5), (40, "online/score", 2.5), (40, "online/online_share", 0.25)]
    assert list(events(tmp_path)) == expected


class Tracker:
    """What Weights & Biases, or trackio, is told; the first wants an account or a server."""

    def __init__(self):
        self.begun, self.logged, self.ended = {}, [], False

    def init(self, **given):
        self.begun = given
        return self

    def log(self, metrics):
        self.logged.append(metrics)

    def finish(self):
        self.ended = True


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_gets_the_metrics_and_the_configuration(name, tmp_path, monkeypatch):
    tracker, folder = Tracker(), tmp_path / "runs" / "first"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(init=tracker.init))
    told = []
    with with_loggers(told_into(told), folder, {"seed": 3}, **{name: "robots"}) as tell:
        tell("online", 20, 40, {"score": 1.5})
        tell("online", 40, 40, {})
        assert not tracker.ended
    own = {"id": "first", "dir": str(folder.parent)} if name == "wandb" else {}
    assert tracker.begun == {"project": "robots", "name": "first", "resume": "allow", "config": {"seed": 3}, **own}
    assert (tmp_path / "runs" / ".wandb").exists() == (name == "wandb")  # hidden, so it is no run
    assert tracker.logged == [{"online/score": 1.5, "online/step": 20}, {"online/step": 40}]
    assert tracker.ended
    assert len(told) == 2
    assert not folder.exists()


def test_a_missing_login_is_one_line(tmp_path, monkeypatch):
    def init(**_):
        raise RuntimeError("No API key configured. Use `wandb login`\nand more")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    with pytest.raises(DataError, match=r"^--wandb: No API key configured.* set WANDB_MODE=offline$"):
        with_loggers(told_into([]), tmp_path / "run", {}, wandb="robots").__enter__()


@pytest.mark.parametrize(
    ("option", "name"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("trackio", "trackio")]
)
def test_a_logger_that_is_not_installed_is_named_with_its_extra(option, name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DataError, match=f"--{option} needs {name}: install arb with its extra '{option}'"):
        with_loggers(told_into([]), tmp_path, {}, **{option: "robots"}).__enter__()


def test_loggers_get_every_column_of_metrics_csv(tmp_path):
    tiny.write_data(tmp_path / "data.npz")
    told, config = [], tiny.config_of(tmp_path / "data.npz", "rlpd", "arb")
    run(config, tmp_path / "run", tell=lambda *arguments: told.append(arguments))
    for phase, columns in RunFolder(tmp_path / "run").metrics().items():
        here = {step: metrics for name, step, _, metrics in told if name == phase and metrics}
        for i, step in enumerate(columns["step"]):
            row = {name: values[i] for name, values in columns.items() if name != "step" and np.isfinite(values[i])}
            assert len(row) > 4
            assert {name: here[step][name] for name in row} == row
