"""The figures of a run reach TensorBoard and Weights & Biases, each only where it was asked for."""

import json
import struct
import sys
from types import SimpleNamespace

import pytest
from tensorboardX.proto.event_pb2 import Event

from arb import DataError
from arb.lab.metrics import with_loggers


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


def test_tensorboard_gets_every_figure_at_its_step(tmp_path):
    told = []
    with with_loggers(told_into(told), tmp_path, tensorboard=True, wandb_project=None) as tell:
        tell("pretrain", 20, 40, {"score": 1.5})
        tell("online", 40, 60, {"score": 2.5, "online_share": 0.25})
    assert told == [("pretrain", 20, 40, {"score": 1.5}), ("online", 40, 60, {"score": 2.5, "online_share": 0.25})]
    expected = [(20, "pretrain/score", 1.5), (40, "online/score", 2.5), (40, "online/online_share", 0.25)]
    assert list(events(tmp_path)) == expected


class Wandb:
    """What Weights & Biases is told; the real one wants an account or a server."""

    def __init__(self):
        self.begun, self.logged, self.config, self.ended = {}, [], {}, False

    def init(self, **given):
        self.begun = given
        return self

    def log(self, figures):
        self.logged.append(figures)

    def finish(self):
        self.ended = True


def test_wandb_gets_the_figures_and_the_configuration_once(tmp_path, monkeypatch):
    wandb, folder = Wandb(), tmp_path / "runs" / "first"
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=wandb.init))
    folder.mkdir(parents=True)
    told = []
    with with_loggers(told_into(told), folder, tensorboard=False, wandb_project="robots") as tell:
        (folder / "config.json").write_text(json.dumps({"config": {"seed": 3}}))  # a run writes it when it begins
        tell("online", 20, 40, {"score": 1.5})
        (folder / "config.json").unlink()  # read once
        tell("online", 40, 40, {})
        assert not wandb.ended
    assert wandb.begun == {
        "project": "robots", "name": "first", "id": "first", "dir": str(folder.parent), "resume": "allow",
    }  # fmt: skip
    assert wandb.config == {"seed": 3}
    assert wandb.logged == [{"online/score": 1.5, "online/step": 20}, {"online/step": 40}]
    assert wandb.ended
    assert len(told) == 2
    assert not (folder / "tensorboard").exists()


@pytest.mark.parametrize("name", ["tensorboardX", "wandb"])
def test_a_logger_that_is_not_installed_is_named_with_its_extra(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    asked = (name == "tensorboardX", "robots" if name == "wandb" else None)
    with pytest.raises(DataError, match=r"pip install 'arb-rl\[(tensorboard|wandb)\]'") as caught:
        with_loggers(told_into([]), tmp_path, *asked).__enter__()
    assert name in str(caught.value)
