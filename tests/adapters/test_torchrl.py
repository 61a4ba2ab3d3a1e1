"""TorchRL's own parts around our sampler: its collector, SAC, storages, trainer hooks and checkpoints."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import arb
from arb.errors import DataError

with warnings.catch_warnings():  # the host warns of itself while it is imported
    warnings.simplefilter("ignore")
    torchrl = pytest.importorskip("torchrl", reason="needs pip install 'arb-rl[torchrl]'")
    import torch
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torch import nn
    from torchrl.checkpoint import Checkpoint
    from torchrl.collectors import Collector
    from torchrl.data import LazyMemmapStorage, LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.data.replay_buffers import Sequence
    from torchrl.envs import GymEnv, SerialEnv
    from torchrl.modules import (
        MLP,
        IndependentNormal,
        OneHotCategorical,
        ProbabilisticActor,
        TanhDelta,
        TanhNormal,
        TruncatedNormal,
        ValueOperator,
    )
    from torchrl.objectives import SACLoss, SoftUpdate
    from torchrl.trainers.algorithms import SACTrainer

    from arb.adapters.torchrl import RefreshHook, StrategySampler, actor_log_likelihood, as_collected

from tests.adapters.pendulum import LIMIT, full_torque
from tests.adapters.strategies import STRATEGIES

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:SACTrainer is an experimental:UserWarning"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def past():
    return full_torque(600)


def make_actor(distribution=TanhNormal, **kwargs):
    torch.manual_seed(0)
    network = nn.Sequential(MLP(in_features=3, out_features=2, num_cells=[16]), NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=distribution,
        distribution_kwargs=kwargs or {"low": -LIMIT, "high": LIMIT},
    )


def make_buffer(past, strategy=None, capacity=1000, storage=LazyTensorStorage):
    sampler = StrategySampler(strategy or arb.ARB(0.5), seed=0)
    buffer = TensorDictReplayBuffer(storage=storage(capacity), sampler=sampler, batch_size=32)
    if past is not None:
        with sampler.offline():
            buffer.extend(as_collected(past))
    return sampler, buffer


def make_collector(actor, frames, envs=1, seed=0):
    env = SerialEnv(envs, lambda: GymEnv("Pendulum-v1")) if envs > 1 else GymEnv("Pendulum-v1")
    env.set_seed(seed)
    torch.manual_seed(seed)
    return Collector(env, actor, frames_per_batch=100, total_frames=frames, auto_register_policy_transforms=False)


def make_loss(actor):
    critic = ValueOperator(MLP(in_features=4, out_features=1, num_cells=[16]), in_keys=["observation", "action"])
    loss = SACLoss(actor, critic, action_spec=GymEnv("Pendulum-v1").action_spec)
    loss.make_value_estimator(gamma=0.98)
    return loss


def train(past, strategy=None, rounds=3):
    """SAC with the host's collector: collect, refresh, update. Returns what the last batch held, and all else."""
    actor = make_actor()
    sampler, buffer = make_buffer(past, strategy)
    loss = make_loss(actor)
    target, adam = SoftUpdate(loss, eps=0.99), torch.optim.Adam(loss.parameters(), 1e-3)
    refresh = RefreshHook(sampler, actor, buffer, every=100)
    for data in make_collector(actor, 100 * rounds):
        buffer.extend(data)
        refresh()
        for _ in range(3):
            batch = buffer.sample()
            losses = loss(batch)
            adam.zero_grad()
            sum(losses[key] for key in ("loss_actor", "loss_qvalue", "loss_alpha")).backward()
            adam.step()
            target.step()
    return batch, sampler, buffer, actor


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_sac_with_collector(past, strategy):
    _, sampler, buffer, _ = train(past, strategy())
    drawn = np.concatenate([buffer.sample()["index"] for _ in range(60)])
    stats = sampler.stats()
    assert stats["online_rows"] == pytest.approx(1 / 3)
    share = sampler.index.is_online(drawn).mean()
    assert share == pytest.approx(stats["online_share"], abs=0.06)
    if isinstance(strategy(), arb.Mixed | arb.ARB):
        assert share > stats["online_rows"] + 0.1


def test_same_seed_same_batches(past):
    (batch, *_), (again, *_) = train(past), train(past)
    assert (batch == again).all()


def test_sampled_transitions_are_the_stored_ones(past):
    batch = train(past, arb.Mixed())[0]
    index = batch["index"]
    offline = index < 600
    assert offline.sum() == 16
    for key, column in {"observation": "observations", "action": "actions"}.items():
        np.testing.assert_allclose(batch[key][offline], past[column][index[offline]], rtol=1e-6)
    np.testing.assert_allclose(
        batch["next", "observation"][offline], past["next_observations"][index[offline]], rtol=1e-6
    )
    np.testing.assert_allclose(batch["next", "reward"][offline, 0], past["rewards"][index[offline]], rtol=1e-6)


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
def test_ring_wraps_through_trajectories_of_several_environments(past, storage):
    """Every living row belongs to the trajectory that the collector wrote beside it."""
    actor = make_actor()
    sampler, buffer = make_buffer(past, capacity=700, storage=storage)
    for data in make_collector(actor, 1200, envs=2):
        buffer.extend(data.reshape(-1))
        sampler.refresh(actor, buffer)
    index = sampler.index
    trajectory = index.episode_ids[:700]
    pairs = set(zip(trajectory.tolist(), buffer[:]["collector", "traj_ids"].tolist(), strict=True))
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    assert index.is_online(np.arange(700)).all()
    assert sampler.stats()["steps_since_refresh"] == 0


def test_sequences_around_the_rows_that_the_strategy_draws(past):
    """The host's sample units expand our rows; no window crosses the end of an episode."""
    sampler = StrategySampler(arb.Uniform(), seed=0)
    unit = Sequence(length=3)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(3000), sampler=sampler, batch_size=64, sample_unit=unit)
    assert not buffer.can_sample()
    with sampler.offline():
        buffer.extend(as_collected(past))
    assert buffer.can_sample()
    windows = buffer.sample().reshape(64, 3)
    valid = windows["validity_mask"]
    trajectory = windows["collector", "traj_ids"]
    assert (trajectory == trajectory[:, :1])[valid].all()
    step = windows["next", "observation"][:, :-1] == windows["observation"][:, 1:]
    assert step.all(-1)[valid[:, 1:]].all()


def test_steps_of_one_environment_without_numbers_end_at_done(past):
    sampler, buffer = make_buffer(None)
    buffer.extend(as_collected(past).exclude("collector"))
    buffer.add(as_collected(past)[0].exclude("collector"))
    stats = sampler.stats()
    assert (stats["trajectories"], stats["online_rows"]) == (4, 1)


@pytest.mark.parametrize("keys", [["episode"], [("next", "done")]])
def test_offline_trajectories_from_what_there_is(past, keys):
    data = as_collected(past)
    data["episode"] = data["collector", "traj_ids"]
    sampler, buffer = make_buffer(None)
    with sampler.offline():
        buffer.extend(data.select("observation", "action", *keys))
    assert sampler.stats()["trajectories"] == 3


def test_storage_filled_before_is_offline(past):
    storage = LazyTensorStorage(1000)
    TensorDictReplayBuffer(storage=storage).extend(as_collected(past))
    sampler = StrategySampler(arb.ARB(0.5), seed=0)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=8)
    buffer.sample()
    assert (sampler.stats()["trajectories"], sampler.stats()["online_rows"]) == (3, 0)


@pytest.mark.parametrize("strategy", ["mixed", "trajectory", "transition", "auto", "learned ratio"])
@pytest.mark.parametrize("way", ["state_dict", "dumps"])
def test_checkpoint_keeps_the_weights(past, tmp_path, way, strategy):
    _, sampler, buffer, actor = train(past, STRATEGIES[strategy](), rounds=2)
    restored, other = make_buffer(None, STRATEGIES[strategy]())
    if way == "dumps":
        buffer.dumps(tmp_path)
        other.loads(tmp_path)
    else:
        torch.save(buffer.state_dict(), tmp_path / "buffer.pt")
        other.load_state_dict(torch.load(tmp_path / "buffer.pt"))
    np.testing.assert_array_equal(restored.index.sampler.probabilities(), sampler.index.sampler.probabilities())
    assert restored.index.refreshed_at == sampler.index.refreshed_at
    for _ in range(3):
        assert (other.sample() == buffer.sample()).all()
    more = next(iter(make_collector(actor, 100, seed=1)))  # a new collector counts from 0 again
    other.extend(more)
    restored.refresh(actor, other)
    trajectories = restored.index.episode_ids[:900].tolist()
    assert not set(trajectories[800:]) & set(trajectories[:800])


def test_state_is_a_copy(past):
    sampler, _ = make_buffer(past)
    state = sampler.state_dict()
    other, _ = make_buffer(None)
    other.load_state_dict(state)
    state["index/episode_ids"].fill_(0)
    np.testing.assert_array_equal(other.index.episode_ids[:600], sampler.index.episode_ids[:600])


def test_trainer_refreshes_and_resumes(past, tmp_path):
    """The host's trainer marks the last row of what it collects as truncated; the trajectory goes on nevertheless."""

    def make(frames):
        actor = make_actor()
        sampler, buffer = make_buffer(past)
        loss = make_loss(actor)
        trainer = SACTrainer(
            collector=make_collector(actor, frames),
            total_frames=frames,
            frame_skip=1,
            optim_steps_per_batch=2,
            loss_module=loss,
            optimizer=torch.optim.Adam(loss.parameters(), 1e-3),
            replay_buffer=buffer,
            target_net_updater=SoftUpdate(loss, eps=0.99),
            progress_bar=False,
            enable_logging=False,
            checkpoint=Checkpoint(),
            save_trainer_file=tmp_path / "trainer",
            save_trainer_interval=1,
        )
        RefreshHook(sampler, actor, buffer, every=100).register(trainer)
        return trainer, sampler

    trainer, sampler = make(300)
    trainer.train()
    stats = sampler.stats()
    assert (stats["trajectories"], stats["steps_since_refresh"]) == (5, 0)  # 3 past ones, 200 steps, 100 steps
    assert stats["online_share"] > stats["online_rows"]
    resumed, restored = make(300)
    resumed.load_from_file(tmp_path / "trainer")
    np.testing.assert_array_equal(restored.index.sample_indices(50), sampler.index.sample_indices(50))


def test_emptied_buffer_begins_anew(past):
    sampler, buffer = make_buffer(past)
    buffer.empty()
    with pytest.raises(DataError, match="empty storage"):
        buffer.sample()
    buffer.extend(as_collected(past))
    assert sampler.stats()["online_rows"] == 1
    assert (
        repr(sampler) == f"StrategySampler({len(buffer)} of {sampler.index.capacity} rows, {sampler.index.sampler!r})"
    )
    assert repr(StrategySampler(arb.Uniform())) == "StrategySampler(Uniform())"


# ---- likelihood -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", [TanhNormal, IndependentNormal])
def test_density_is_the_host_log_prob(past, distribution):
    """Away from the bounds, where the hosts clamp differently."""
    kwargs = {"low": -LIMIT, "high": LIMIT} if distribution is TanhNormal else {"tanh_loc": False}
    actor = make_actor(distribution, **kwargs)
    batch = as_collected({**past, "actions": past["actions"] * 0.9})
    with torch.no_grad():
        expected = actor.get_dist(batch).log_prob(batch["action"])
    np.testing.assert_allclose(actor_log_likelihood(actor, batch, "density"), expected, rtol=1e-4, atol=1e-4)


def test_standard_by_hand():
    """Mean 0 and width 1 before tanh: half torque is z = atanh(1/2) = 0.5493, so -z²/2 - ln(2π)/2 = -1.0698."""
    actor = make_actor()
    for p in actor.parameters():
        nn.init.zeros_(p)
    batch = TensorDict({"observation": torch.zeros(1, 3), "action": torch.tensor([[1.0]])}, [1])
    scale = actor.get_dist(batch).scale.item()
    assert scale == pytest.approx(1.0, abs=0.01)
    expected = -0.5 * (0.549306 / scale) ** 2 - 0.918939
    assert actor_log_likelihood(actor, batch) == pytest.approx(expected, abs=1e-5)


def test_other_distributions_by_their_log_prob(past):
    actor = make_actor(TruncatedNormal, low=-LIMIT, high=LIMIT)
    batch = as_collected({**past, "actions": past["actions"] * 0.5})
    with torch.no_grad():
        expected = actor.get_dist(batch).log_prob(batch["action"])
    np.testing.assert_allclose(actor_log_likelihood(actor, batch), expected.reshape(-1), rtol=1e-6)

    discrete = ProbabilisticActor(
        TensorDictModule(
            MLP(in_features=3, out_features=2, num_cells=[8]), in_keys=["observation"], out_keys=["logits"]
        ),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
    )
    batch["action"] = nn.functional.one_hot(torch.arange(600) % 2)
    odds = torch.log_softmax(discrete(batch.clone())["logits"], -1)
    np.testing.assert_allclose(
        actor_log_likelihood(discrete, batch), odds[torch.arange(600), torch.arange(600) % 2].detach(), rtol=1e-5
    )


def test_deterministic_actors_are_scored_by_distance(past):
    network = TensorDictModule(
        MLP(in_features=3, out_features=1, num_cells=[8]), in_keys=["observation"], out_keys=["param"]
    )
    delta = ProbabilisticActor(network, in_keys=["param"], distribution_class=TanhDelta)
    plain = TensorDictModule(
        MLP(in_features=3, out_features=1, num_cells=[8]), in_keys=["observation"], out_keys=["action"]
    )
    sampler, buffer = make_buffer(past)
    batch = buffer[:]
    for actor in (delta, plain):
        with torch.no_grad():
            near = -0.5 * (actor(batch.clone()).get("action") - batch["action"])[:, 0] ** 2
        np.testing.assert_allclose(actor_log_likelihood(actor, batch), near, rtol=1e-4, atol=1e-6)
        RefreshHook(sampler, actor, buffer)()
    scored = []
    RefreshHook(sampler, None, buffer, every=0, score=lambda o, a: scored.append(o.shape[1:]) or a[:, 0])()
    assert scored[0] == (3,)


def test_much_data_at_once_without_a_word_is_pointed_out(monkeypatch, past):
    monkeypatch.setattr("arb.adapters.torchrl.PATIENCE", 100)
    sampler = StrategySampler(arb.Mixed())
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(2000), sampler=sampler, batch_size=8)
    with pytest.warns(UserWarning, match="count as online steps.*sampler.offline"):
        buffer.extend(as_collected(past))


# ---- mistakes ---------------------------------------------------------------------------------------------------


def test_mistakes_are_said_in_one_line(past):
    data = as_collected(past)
    with pytest.raises(arb.DataError, match="seen no rows yet"):
        StrategySampler().stats()
    with pytest.raises(arb.DataError, match="storage of one dimension"):
        TensorDictReplayBuffer(storage=LazyTensorStorage(1000, ndim=2), sampler=StrategySampler()).extend(
            data.reshape(3, 200)
        )
    with pytest.raises(arb.DataError, match="no call larger than the storage"):
        make_buffer(past, capacity=500)
    with pytest.raises(arb.DataError, match="which ARB needs: keep one of them"):
        make_buffer(None)[1].extend(data.select("observation", "action"))
    _, buffer = make_buffer(past)
    buffer.storage.set(range(600, 610), data[:10])
    with pytest.raises(arb.DataError, match="the storage has 610 rows, but this sampler has seen 600"):
        buffer.sample()


def test_example_runs(monkeypatch, capsys):
    budget = ["--past", "400", "--pretrain", "2", "--steps", "200", "--every", "100"]
    monkeypatch.setattr(sys, "argv", ["torchrl_sac.py", *budget])
    runpy.run_path(str(EXAMPLES / "torchrl_sac.py"), run_name="__main__")
    assert capsys.readouterr().out.count("of the buffer") == 2
