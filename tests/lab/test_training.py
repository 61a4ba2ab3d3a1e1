"""How a run stops, continues, shares and exports; what it refuses before and while it works."""

import json

import gymnasium
import numpy as np
import pytest

from arb import DataError, ReplayBuffer, Uniform
from arb.cli import main
from arb.data.tasks import FAMILIES, Reference
from arb.envs.rollout import ActionMap, Collector, play
from arb.errors import EnvironmentFailure, Interrupted
from arb.files import locked, write_text
from arb.lab import training
from arb.lab.config import configure, flat, with_key
from arb.lab.folder import RunFolder, is_intact, write_folder
from arb.lab.machine import MachineLog, Timer, check_memory, describe_machine
from arb.lab.setup import Normalization, Setup
from arb.lab.training import run
from arb.policies import load_policy
from tests.lab import tiny

SHORT = {"schedule.pretrain": 20, "schedule.online": 40, "schedule.updates": 20, "evaluation.every": 20}


class Pendulum(gymnasium.Wrapper):
    """Pendulum in other clothes: observations in parts, a NaN, an infinite reward, or a word on success."""

    def __init__(self, style="plain"):
        super().__init__(gymnasium.make("Pendulum-v1").unwrapped)
        self.style, self.steps = style, 0
        box = self.env.observation_space
        if style == "parts":
            parts = {"b": gymnasium.spaces.Box(box.low[:2], box.high[:2]), "a": gymnasium.spaces.Box(-8.0, 8.0, (1,))}
            self.observation_space = gymnasium.spaces.Dict(parts)
        if style == "image":
            self.observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)

    def _obs(self, obs):
        return {"b": obs[:2], "a": obs[2:]} if self.style == "parts" else obs

    def reset(self, *, seed=None, options=None):
        obs, info = self.env.reset(seed=seed, options=options)
        self.steps = 0
        return self._obs(obs), info

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if self.style == "nan" and self.steps == 3:
            obs = obs * np.nan
        if self.style == "infinite" and self.steps == 3:
            reward = -np.inf
        if self.style == "success":
            info = {**info, "is_success": self.steps == 5}
        return self._obs(obs), reward, terminated, truncated, info


@pytest.fixture(scope="module", autouse=True)
def environments():
    names = {style: f"arb-tests/{style}-v0" for style in ("parts", "image", "nan", "infinite", "success")}
    for style, name in names.items():
        gymnasium.register(name, Pendulum, max_episode_steps=40, disable_env_checker=True, kwargs={"style": style})
    yield
    for name in names.values():
        del gymnasium.registry[name]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    tiny.write_data(folder / "data.npz")
    return folder


def config_of(place, **more):
    return tiny.config_of(place / "data.npz", "iql", "arb", **(SHORT | more))


@pytest.fixture(scope="module")
def finished(place):
    return run(config_of(place), place / "finished")


@pytest.fixture(scope="module")
def straight(place):
    return run(config_of(place, **{"schedule.online": 80}), place / "straight")


def tables(folder):
    return {name: (folder / name).read_bytes() for name in ("metrics.csv", "eval.csv")}


# ---- folders that are shared, continued, interrupted -----------------------------------------------------------------


def test_a_second_process_in_the_folder_is_refused_in_one_line(place):
    with locked(place / "busy" / ".lock", ""), pytest.raises(DataError, match="another process is working on the run"):
        run(config_of(place), place / "busy")
    assert not (place / "busy" / "config.json").exists()


def test_more_steps_continue_a_finished_run_bit_for_bit(place, finished, straight):
    continued = run(config_of(place, **{"schedule.online": 80}), finished.folder)
    assert tables(finished.folder) == tables(straight.folder)
    assert continued._replace(folder=straight.folder) == straight
    assert RunFolder(finished.folder).description().config["schedule.online"] == 80
    with pytest.raises(DataError, match=r"holds a run with schedule.online = 80, not 40"):
        run(config_of(place), finished.folder)


def test_a_run_that_is_continued_is_unfinished_until_it_ends_again(place, straight):
    folder = run(config_of(place), place / "longer").folder
    longer = config_of(place, **{"schedule.online": 80})
    with pytest.raises(Interrupted):
        run(longer, folder, stop=lambda: True)  # after the first chunk
    assert not RunFolder(folder).done
    assert run(longer, folder)._replace(folder=straight.folder) == straight


@pytest.mark.parametrize("length", [50, 45, 10])
def test_more_steps_continue_a_run_whose_last_chunk_was_cut_short_or_evaluated_early(place, length):
    """In chunks of 20 steps and with an evaluation every 40: the run goes back to where a longer one came by."""
    more = {"evaluation.every": 40, "evaluation.episodes": 1}
    straight = run(config_of(place, **more, **{"schedule.online": 100}), place / f"{length}-straight")
    folder = run(config_of(place, **more, **{"schedule.online": length}), place / f"{length}-continued").folder
    assert (folder / "eval.csv").read_text().count(f"online,{length},") == 1
    saved = [json.loads(path.read_text())["step"] for path in sorted(folder.glob("checkpoint/*/state.json"))]
    assert saved == [length // 20 * 20, length][-2 if length > 20 else -1 :]  # the end, and before the last chunk
    continued = run(config_of(place, **more, **{"schedule.online": 100}), folder)
    assert tables(folder) == tables(straight.folder)
    assert continued._replace(folder=straight.folder) == straight
    for name in ("policy", "best", "pretrained"):
        same = [np.load(at / "policy" / f"{name}.npz") for at in (folder, straight.folder)]
        assert all(np.array_equal(same[0][key], same[1][key]) for key in same[0].files), name


def test_going_back_brings_back_the_policy_that_was_best_there(place, monkeypatch):
    monkeypatch.setattr(Setup, "scores", lambda self, returns: np.zeros_like(returns))  # the first stays the best
    folder = run(config_of(place, **{"schedule.online": 50, "evaluation.every": 40}), place / "tied").folder
    best = folder / "policy" / "best.npz"
    kept = best.read_bytes()
    best.write_bytes(b"of the evaluation at step 50")
    run(config_of(place, **{"schedule.online": 100, "evaluation.every": 40}), folder)
    assert best.read_bytes() == kept


@pytest.mark.parametrize("strategy", ["annealed"])
def test_a_strategy_that_spans_the_whole_length_is_not_continued(strategy, tmp_path):
    config = tiny.config_of(tmp_path / "data.npz", "iql", strategy)
    write_text(tmp_path / "config.json", json.dumps({"config": flat(config)}))
    RunFolder(tmp_path).check_config(config)
    with pytest.raises(DataError, match=f"schedule.online = 60, and {strategy} depends on that length"):
        RunFolder(tmp_path).check_config(with_key(config, "schedule.online", 80))


@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_a_damaged_pretraining_is_done_again(place, damage):
    cache = place / f"cache-{damage}"
    first = run(config_of(place), place / f"{damage}-1", cache=cache)
    (agent,) = cache.glob("*/agent.safetensors")
    good = agent.read_bytes()
    agent.write_bytes(good[:-1] + bytes([good[-1] ^ 1]) if damage == "flipped" else good[: len(good) // 2])
    again = run(config_of(place), place / f"{damage}-2", cache=cache)
    assert tables(again.folder) == tables(first.folder)
    assert agent.read_bytes() == good
    assert (again.folder / "policy" / "pretrained.npz").read_bytes() == (
        first.folder / "policy" / "pretrained.npz"
    ).read_bytes()


def test_tables_that_two_processes_wrote_are_not_shared(place):
    folder = place / "doubled"
    folder.mkdir()

    def double(phase, step, *_):
        if phase == "pretrain" and step == 20:
            text = (folder / "eval.csv").read_text().splitlines()
            (folder / "eval.csv").write_text("\n".join([*text, *text[1:]]) + "\n")

    with pytest.raises(DataError, match="is there twice"):
        run(config_of(place), folder, tell=double, cache=place / "cache-doubled")
    assert not list((place / "cache-doubled").glob("*"))


def test_a_slow_chunk_is_dropped_when_asked_to_stop_and_done_again(place, straight, monkeypatch):
    monkeypatch.setattr(training, "SLOW", -1.0)  # every chunk is
    config, folder = config_of(place, **{"schedule.online": 80}), place / "slow"
    told, asked = [], []

    def stop():  # not at the end of a chunk, but inside the next
        asked.extend(["once"] * (("online", 40) in told))
        return len(asked) > 1

    with pytest.raises(Interrupted, match="the same command continues from the last checkpoint"):
        run(config, folder, tell=lambda *a: told.append(a[:2]), stop=stop)
    assert told[-1] == ("online", 40)
    run(config, folder)
    assert tables(folder) == tables(straight.folder)


def test_folders_appear_whole_and_are_checked(tmp_path, monkeypatch):
    def broken(folder):
        (folder / "agent.safetensors").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_folder(tmp_path / "x", broken, tmp_path)
    assert list(tmp_path.iterdir()) == []
    on_disk = []
    monkeypatch.setattr("arb.lab.folder.fsync", lambda path: on_disk.append((path.name, (tmp_path / "x").exists())))
    write_folder(tmp_path / "x", lambda folder: (folder / "agent.safetensors").write_text("whole"), tmp_path)
    assert is_intact(tmp_path / "x")
    *before, (unfinished, _), parent = on_disk  # the content is on disk before it has its name, and then the name
    assert set(before) == {(name, False) for name in ("agent.safetensors", "sums.json")}
    assert unfinished.startswith("unfinished.")
    assert parent == (tmp_path.name, True)
    assert not is_intact(tmp_path)
    for text in ("{}", "[]", '{"agent.safetensors": 1}', "{"):
        (tmp_path / "x" / "sums.json").write_text(text)
        assert not is_intact(tmp_path / "x")


def test_a_run_removes_what_a_killed_one_left(place):
    folder = RunFolder(place / "leftovers")
    folder.policies.mkdir(parents=True)
    (folder.checkpoints / "unfinished.0").mkdir(parents=True)
    left = [folder.path / ".config.7.part.json", folder.policies / ".best.7.part.npz"]
    for path in left:
        path.write_text("half")
    run(config_of(place), folder.path)
    assert not any(path.exists() for path in (*left, folder.checkpoints / "unfinished.0"))


def test_old_folders_are_refused_in_one_line(place, tmp_path):
    config = config_of(place)
    held = flat(config)
    held["settings.forgotten"] = held.pop("settings.expectile")
    (tmp_path / "config.json").write_text(json.dumps({"config": held}))
    with pytest.raises(DataError, match=r"another version of arb with other settings \(settings.expectile, "):
        run(config, tmp_path)


# ---- what a run leaves -----------------------------------------------------------------------------------------------


def test_three_policies_are_exported_and_the_best_is_that_of_the_best_evaluation(finished):
    policies = {which: load_policy(finished.folder, which) for which in ("pretrained", "best", "last")}
    bytes_of = {which: RunFolder(finished.folder).policy(which).read_bytes() for which in policies}
    result = RunFolder(finished.folder).result()
    assert (bytes_of["best"] == bytes_of["pretrained"]) == (result.best_step == 0)
    last_step = RunFolder(finished.folder).curves()["online"].steps[-1]
    assert (bytes_of["best"] == bytes_of["last"]) == (result.best_step == last_step)
    assert bytes_of["pretrained"] != bytes_of["last"]


def test_a_later_evaluation_that_is_not_the_highest_leaves_the_best_policy(place, monkeypatch):
    scores = iter([0.0, 1.0, 1.0, 5.0, 3.0])  # offline at 0 and 20, online at 0, 20 and 40
    monkeypatch.setattr(Setup, "scores", lambda self, returns: np.full_like(returns, next(scores)))
    result = run(config_of(place), place / "risen", cache=place / "cache-risen")
    assert (result.best, result.best_step) == (5.0, 20)
    policies = [RunFolder(result.folder).policy(which).read_bytes() for which in ("pretrained", "best", "last")]
    assert len(set(policies)) == 3
    assert next(scores, None) is None


def test_the_machine_and_the_time_stand_beside_the_results(finished):
    machine = RunFolder(finished.folder).machine()
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert machine["started"].endswith("Z")
    parts = machine["parts"]
    assert {"pretrain updates", "online updates", "collecting", "refresh", "evaluation", "checkpoints"} <= set(parts)
    assert sum(machine["seconds"].values()) == pytest.approx(sum(parts.values()), abs=0.01)
    assert describe_machine().keys() == {
        "cpu", "family", "model", "stepping", "flags", "cores", "system", "commit", "dirty",
    }  # fmt: skip


def test_an_inner_part_is_not_counted_in_the_outer_one(monkeypatch):
    now = iter([0.0, 1.0, 3.0, 7.0, 15.0])
    monkeypatch.setattr("arb.lab.machine.time.perf_counter", lambda: next(now))
    timer = Timer({"inner": 100.0})
    with timer.part("outer"), timer.part("inner"):  # from 1; from 3 to 7; until 15
        pass
    assert timer.seconds == {"outer": 2.0 + 8.0, "inner": 104.0}


def test_the_seconds_of_a_phase_are_those_of_its_parts(tmp_path):
    log = MachineLog(RunFolder(tmp_path))
    phases = ("pretrain", "online", "evaluation", "checkpoints", "other")
    assert log.seconds() == dict.fromkeys(phases, 0.0)
    parts = ("pretrain", "pretrain updates", "online", "collecting", "refresh", "online updates", *phases[2:])
    log.timer.seconds |= {name: 10.0**i for i, name in enumerate(parts)}
    assert list(log.seconds().values()) == [11.0, 111_100.0, 1e6, 1e7, 1e8]
    log.write()
    again = MachineLog(RunFolder(tmp_path))  # of the next attempt
    assert again.timer.seconds == log.timer.seconds


def test_success_that_is_reported_only_when_it_happens_is_neither_lost_nor_a_fault(place, monkeypatch):
    told = iter([None, True, None, True, None])  # offline at 0 and 20, online at 0, 20 and 40

    def reporting(*args, **kwargs):
        played, said = play(*args, **kwargs), next(told)
        return played._replace(successes=None if said is None else np.array([True, False]))

    monkeypatch.setattr(training, "play", reporting)
    result = run(config_of(place), place / "silent", cache=place / "cache-silent")
    assert result.success == 0.0
    curves = RunFolder(result.folder).curves()
    assert [values.tolist() for values in curves["pretrain"].successes] == [[0.0, 0.0], [1.0, 0.0]]
    assert [values.tolist() for values in curves["online"].successes] == [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]


def test_success_is_recorded_where_the_environment_says_it(place):
    config = with_key(config_of(place), "env", "arb-tests/success-v0")
    result = run(config, place / "success")
    assert result.success == 1.0  # every episode passes its fifth step
    assert (place / "success" / "eval.csv").read_text().startswith("phase,step,episode,return,score,success\n")


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "what"), [("nan", "as observation in entry 0"), ("infinite", "as reward")])
def test_what_is_not_finite_is_the_environments(style, what, place):
    setup = Setup.of(with_key(config_of(place), "env", f"arb-tests/{style}-v0"))
    env = setup.make_env()
    env.reset(seed=0)
    env.step([0.0])
    env.step([0.0])
    with pytest.raises(EnvironmentFailure, match=f"arb-tests/{style}-v0 returned .* {what}"):
        env.step([0.0])


def test_images_are_refused_with_the_way_out(place):
    with pytest.raises(DataError, match=r"gives images of shape \(8, 8, 3\).* use arb.ReplayBuffer, which stores"):
        Setup.of(with_key(config_of(place), "env", "arb-tests/image-v0"))


def test_observations_in_parts_are_joined_by_one_rule(place):
    with np.load(place / "data.npz") as file:
        columns = dict(file)
    obs = columns.pop("observations")
    np.savez(place / "parts.npz", **columns, **{"observations/b": obs[:, :2], "observations/a": obs[:, 2:]})
    config = configure(task=str(place / "parts.npz"), env="arb-tests/parts-v0")
    setup = Setup.of(config)
    np.testing.assert_array_equal(setup.normalization.observations(obs[:, [2, 0, 1]]), setup.dataset.observations)
    first, _ = setup.make_env().reset(seed=3)
    plain, _ = gymnasium.make("Pendulum-v1").reset(seed=3)
    np.testing.assert_array_equal(first, setup.normalization.observations(plain[[2, 0, 1]]))


def test_the_policy_of_a_run_takes_the_dict_and_knows_the_range_of_what_it_has_seen(place):
    with np.load(place / "data.npz") as file:
        columns = dict(file)
    obs = 0.01 * columns.pop("observations")  # own steps reach much farther
    np.savez(place / "near.npz", **columns, **{"observations/b": obs[:, :2], "observations/a": obs[:, 2:]})
    config = config_of(place, **{"evaluation.every": 10**6})
    folder = run(
        with_key(with_key(config, "task", str(place / "near.npz")), "env", "arb-tests/parts-v0"), place / "near"
    )
    before, last = (load_policy(folder.folder, which) for which in ("pretrained", "last"))
    np.testing.assert_allclose(before.arrays["low"], obs.min(0)[[2, 0, 1]], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(before.arrays["high"], obs.max(0)[[2, 0, 1]], rtol=1e-4, atol=1e-6)
    assert last.arrays["high"][0] > 5 * before.arrays["high"][0]
    far = {"b": np.array([1.0, 0.0]), "a": np.array([900.0])}
    with pytest.warns(UserWarning, match="entry 0 of the observation"):
        assert gymnasium.spaces.Box(-2.0, 2.0, (1,)).contains(last(far))


def test_too_little_memory_is_said_in_gigabytes(monkeypatch):
    monkeypatch.setattr("arb.lab.machine.free_memory", lambda: 10**9)
    with pytest.raises(DataError, match=r"a run on x needs about 2.8 GB of memory, 1.0 GB are free: close other"):
        check_memory("a run on x", 2 * 10**9)
    check_memory("a run on x", 10**8)
    monkeypatch.setattr("arb.lab.machine.free_memory", lambda: None)
    check_memory("a run on x", 10**15)


# ---- steps into the buffer -------------------------------------------------------------------------------------------


class Still:
    """An actor that does nothing."""

    def act(self, obs, rng):
        return np.zeros(1, np.float32)

    def mode(self, obs, rng):
        return np.zeros((len(obs), 1), np.float32)


def test_an_episode_that_is_cut_off_is_not_stored_as_ended():
    env = gymnasium.make("Pendulum-v1", max_episode_steps=5)
    buffer = ReplayBuffer(100, seed=0, autoreset="disabled")
    returns = Collector(env, np.random.SeedSequence(0)).collect(Still(), buffer, 12)
    assert len(returns) == 2
    batch = buffer.gather(np.arange(12))
    assert (batch.mask == 1.0).all()  # bootstrapped everywhere: Pendulum never ends
    assert np.isfinite(batch.return_to_go).tolist() == [True] * 10 + [False] * 2
    assert buffer.stats()["trajectories"] == 3


def test_an_episode_that_ended_is_stored_as_ended():
    class Falling(gymnasium.Wrapper):
        def step(self, action):
            obs, reward, _, truncated, info = self.env.step(action)
            return obs, reward, True, truncated, info

    buffer = ReplayBuffer(10, seed=0, autoreset="disabled")
    Collector(Falling(gymnasium.make("Pendulum-v1")), np.random.SeedSequence(0)).collect(Still(), buffer, 3)
    assert (buffer.gather(np.arange(3)).mask == 0.0).all()


@pytest.mark.parametrize(
    ("agent", "family", "expected"),
    [("calql", "antmaze", -5.0), ("iql", "antmaze", None), ("calql", "locomotion", None)],
)
def test_a_failed_maze_episode_has_a_known_return_offline_and_online(agent, family, expected):
    env = gymnasium.make("Pendulum-v1")
    normalization = Normalization(scale=10.0, shift=-5.0)
    config = configure(agent=agent)
    setup = Setup(
        config,
        None,
        np.zeros(0, np.float32),
        {},
        "",
        FAMILIES[family],
        Reference(0, 1),
        normalization,
        ActionMap(env.action_space),
    )
    buffer = setup.new_buffer(Uniform(), 10, "online")
    for step in range(3):
        buffer.add([float(step)], [0.0], -5.0, [step + 1.0], terminated=False, truncated=step == 2)
    returns = buffer.gather(np.arange(3)).return_to_go
    if expected is None:
        assert returns[2] == pytest.approx(-5.0)
    else:
        np.testing.assert_allclose(returns, -5.0 / (1 - config.settings.discount), rtol=1e-5)


def test_episodes_are_the_same_whatever_plays_beside_them():
    def make():
        return gymnasium.make("Pendulum-v1", max_episode_steps=7)

    narrow, wide = (play(Still(), make, 5, np.random.SeedSequence(1), width=width) for width in (1, 4))
    np.testing.assert_array_equal(narrow.returns, wide.returns)
    assert narrow.successes is None


def test_a_pause_can_end_an_evaluation_and_collecting():
    def stop():
        raise Interrupted("now")

    env = gymnasium.make("Pendulum-v1")
    with pytest.raises(Interrupted):
        play(Still(), lambda: env, 1, np.random.SeedSequence(0), pause=stop)
    with pytest.raises(Interrupted):
        Collector(env, np.random.SeedSequence(0)).collect(Still(), ReplayBuffer(9), 1, stop)


def test_serious_faults_are_found_when_asked_for(place):
    with np.load(place / "data.npz") as file:
        columns = dict(file)
    columns["terminals"] = columns["timeouts"]
    columns["timeouts"] = np.zeros_like(columns["terminals"])
    np.savez(place / "limits.npz", **columns)
    config = configure(task=str(place / "limits.npz"), env="arb-tests/success-v0")  # whose limit is 40, as the data's
    assert Setup.of(config).faults == ()
    (fault,) = Setup.of(config, audited=True).faults
    assert "40" in fault


def test_the_command_repeats_a_serious_fault_and_says_which_policy_is_best(place, capsys):
    with np.load(place / "data.npz") as file:
        columns = dict(file)
    columns |= {"terminals": columns["timeouts"], "timeouts": np.zeros_like(columns["timeouts"])}
    np.savez(place / "at-the-limit.npz", **columns)
    keys = tiny.SMALL | SHORT
    keys["settings.hidden_dims"] = "(8,8)"
    out, task = place / "told", str(place / "at-the-limit.npz")
    arguments = ["run", "--task", task, "--env", "arb-tests/success-v0", "-o", str(out)]
    assert main([*arguments, *(f"{key}={value}" for key, value in keys.items())]) == 0
    said = capsys.readouterr().out
    (warning,) = (line for line in said.splitlines() if line.startswith("warning: "))
    assert "40" in warning
    assert "arb data audit" in warning
    scores = RunFolder(out).result()
    best = max(scores.best, scores.pretrained)
    place_of_best = f"at online step {scores.best_step}" if scores.best_step else "before fine-tuning"
    (line,) = (line for line in said.splitlines() if line.startswith("best policy"))
    assert line.startswith(f"best policy {best:.1f} {place_of_best}; it was chosen by these evaluations")
    assert line.endswith("--policy all --episodes 100` compares the policies)")
