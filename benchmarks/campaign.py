"""The runs behind docs/results.md and docs/suite.md: grids of runs on the suite, packed into archives.

    python benchmarks/campaign.py locomotion --seeds 0-2   IQL on the suite's twelve locomotion datasets
    python benchmarks/campaign.py --list                   all campaigns, with their number of runs
    python benchmarks/campaign.py locomotion --quick       two short runs, to see that it works

What is expected of each campaign is written down in results/forecasts.md before its first run. Seeds are outermost,
then datasets, so that what is there can be read at any time. Runs go one after the other in one process and share
compiled programs; start a second process on another core with other seeds or datasets. The same command again continues
where it was stopped: runs that the archive under `results/` holds are not done again, on whatever machine they were
made, and the archive grows after every dataset.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arb.data.tasks import SUITE
from arb.lab.config import Config, configure, from_flat
from arb.lab.training import run
from arb.report.records import Record, pack, read_archive

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
sys.path.append(str(ROOT / "examples" / "strategies"))
Settings = Mapping[str, Any]

ROBOTS, QUALITIES = ("hopper", "walker2d", "halfcheetah"), ("mixed", "medium-expert", "medium", "random")
SETS = tuple(f"suite:{robot}-{quality}" for quality in QUALITIES for robot in ROBOTS)
"""Those that say most first."""
FOUR = ("suite:hopper-mixed", "suite:walker2d-mixed", "suite:halfcheetah-mixed", "suite:walker2d-medium-expert")
MAZES = ("suite:antmaze-umaze-play", "suite:antmaze-umaze-diverse", "suite:antmaze-medium-play")
PLUG_INS = ("annealed", "recent", "warm_start:WarmStart", "road:Road")
"""The last two are plug-ins in examples/strategies."""
FEW = ("naive", "parallel", "arb", "arb_auto")
SMALL: Settings = {}
"""The preset `small` as it is: the paper's networks and batches, 80,000 updates offline and 40,000 steps online."""
GOALS: Settings = {"evaluation.every": 20_000, "evaluation.episodes": 50}
"""A goal is reached or not, so that a few episodes say little."""
QUICK: Settings = {
    "schedule.pretrain": 100,
    "schedule.online": 100,
    "schedule.collect": 50,
    "schedule.updates": 50,
    "schedule.refresh": 50,
    "evaluation.every": 100,
    "evaluation.episodes": 1,
}


@dataclass(frozen=True)
class Campaign:
    """A grid: datasets, agents, and conditions, each a strategy with settings."""

    purpose: str
    conditions: Mapping[str, tuple[str, Settings]]
    tasks: tuple[str, ...] = SETS
    agents: tuple[str, ...] = ("iql",)
    settings: Settings = field(default_factory=lambda: SMALL)
    place: str = "."
    """Folder of the archive, below that of the others; the results page takes none from there."""

    def cells(self, seeds: Sequence[int]) -> Iterator[tuple[str, str, Config]]:
        """Dataset, folder below the campaign's, and configuration of every run, in the order in which they are done."""
        for seed in seeds:
            for task in self.tasks:
                for agent in self.agents:
                    for name, (strategy, own) in self.conditions.items():
                        settings = {**self.settings, **own}
                        config = configure(
                            task=task, agent=agent, strategy=strategy, seed=seed, preset="small", overrides=settings
                        )
                        yield task, f"{task.replace(':', '-')}/{agent}/{name}/seed-{seed}", config

    def quick(self) -> Campaign:
        """The first two conditions on a few thousand bundled rows, with next to no training."""
        few = dict(list(self.conditions.items())[:2])
        return replace(self, conditions=few, tasks=("bundled:hopper-tiny",), agents=self.agents[:1], settings=QUICK)


def _plain(strategies: Sequence[str]) -> dict[str, tuple[str, Settings]]:
    return {name.partition(":")[0]: (name, {}) for name in strategies}


OFFLINE: dict[str, tuple[str, Settings]] = {"offline": ("parallel", {"replay.offline_share": 1.0})}
"""The same updates from the dataset alone: what training on without an environment gives."""
REFERENCE: dict[str, tuple[str, Settings]] = {
    "cloning": ("naive", {"settings.beta": 0.0, "schedule.pretrain": 40_000, "evaluation.every": 20_000}),
    "iql": ("naive", {}),
}
CAMPAIGNS = {
    "locomotion": Campaign(
        "IQL on the suite's twelve locomotion datasets: does adapting help an agent that works?",
        {**_plain(("naive", "arb_auto")), **OFFLINE, **_plain(("arb",))},
    ),
    "paper": Campaign("the paper's other strategies on the same datasets", _plain(("parallel", "top_n"))),
    "berb": Campaign("BERB, whose runs cost twice as much", _plain(("berb",)), FOUR),
    "ladders": Campaign(
        "the same datasets from the second ladders",
        {**_plain(("naive", "arb_auto")), **OFFLINE},
        tuple(f"{task}-b" for task in SETS if f"{task}-b" in SUITE),
    ),
    "plug-ins": Campaign("four other strategies", _plain(PLUG_INS), FOUR),
    "effective": Campaign(
        "which effective sample size ARB auto should keep",
        {f"auto-{share}": ("arb_auto", {"replay.effective": share}) for share in (0.1, 0.25, 0.5, 0.75)},
        SETS[:6],
    ),
    "agents": Campaign("PEX and FamO2O", _plain(("naive", "arb_auto")), SETS[:6], ("pex", "famo2o")),
    "sac": Campaign("SAC without a word about offline data", _plain(FEW), FOUR, ("sac",)),
    "flows": Campaign(
        "FQL and QC-FQL, whose authors replay everything alike",
        _plain(("naive", "parallel", "arb_auto")),
        FOUR,
        ("fql", "qcfql"),
        {"settings.hidden_dims": (256, 256)},
    ),
    "flows-ogbench": Campaign(
        "the same on two tasks of OGBench, with the networks and the alpha of FQL's authors",
        _plain(("naive", "parallel", "arb_auto")),
        tuple(f"ogbench:{name}-play-singletask-v0" for name in ("cube-single", "scene")),
        ("fql", "qcfql"),
        {**GOALS, "settings.alpha": 300.0, "settings.normalize_q": False},
    ),
    "calql": Campaign("Cal-QL, whose updates cost 25 times as much", _plain(FEW), FOUR[3:], ("calql",)),
    "antmaze": Campaign("AntMaze", _plain(FEW), MAZES, ("iql", "pex"), {**GOALS, "schedule.pretrain": 200_000}),
    "million": Campaign(
        "the paper's largest claim at the paper's size",
        _plain(("naive", "arb", "arb_auto")),
        ("suite:hopper-random",),
        settings={"schedule.pretrain": 1_000_000, "schedule.online": 1_000_000, "evaluation.every": 50_000},
    ),
    "reference": Campaign(
        "reference scores of the suite: behaviour cloning, which is IQL at β = 0, and IQL, offline",
        REFERENCE,
        SETS,
        settings={"schedule.online": 1},
        place="offline",
    ),
    "reference-antmaze": Campaign(
        "the same of AntMaze, at the paper's β = 10, and with a β that keeps an effective sample size",
        {**REFERENCE, "iql-auto": ("naive", {"settings.beta": "auto"})},
        tuple(task for task in SUITE if "antmaze" in task),
        settings={**GOALS, "schedule.online": 1, "schedule.pretrain": 200_000},
        place="offline",
    ),
}


def holds(record: Record, config: Config) -> bool:
    """Whether a finished run of an archive is that of a configuration."""
    archived = (record.status, *(record.config.get(key) for key in ("task", "agent", "replay.strategy", "seed")))
    wanted = ("done", config.task, config.agent, config.replay.strategy, config.seed)
    return archived == wanted and from_flat(record.config) == config


def main() -> None:
    """Do what is left of a campaign."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("campaign", nargs="?", choices=CAMPAIGNS)
    options.add_argument("--seeds", default="0-2", help="A-B or A,B,C (0-2)")
    options.add_argument("--out", type=Path, default=Path("runs/campaigns"), help="folder of the runs")
    options.add_argument("--results", type=Path, default=RESULTS, help="folder of the archives")
    options.add_argument("--task", help="only this dataset")
    options.add_argument("--agent", help="only this agent")
    options.add_argument("--strategy", help="only this strategy")
    options.add_argument("--quick", action="store_true", help="two short runs on a bundled set")
    options.add_argument("--list", action="store_true", help="show the campaigns and stop")
    chosen = options.parse_args()
    first, _, last = chosen.seeds.partition("-")
    seeds = list(range(int(first), int(last) + 1)) if last else [int(seed) for seed in first.split(",")]
    if chosen.list or not chosen.campaign:
        for name, campaign in CAMPAIGNS.items():
            runs = len(campaign.tasks) * len(campaign.agents) * len(campaign.conditions)
            print(f"{name:<18} {campaign.purpose}: {runs} runs per seed")
        return
    campaign, out = CAMPAIGNS[chosen.campaign], chosen.out / chosen.campaign
    cells = list(campaign.quick().cells(seeds[:1]) if chosen.quick else campaign.cells(seeds))
    for name, there in (
        ("task", [task for task, _, _ in cells]),
        ("agent", [config.agent for _, _, config in cells]),
        ("strategy", [config.replay.strategy for _, _, config in cells]),
    ):
        asked = getattr(chosen, name)
        if asked is not None and asked not in there:
            known = ", ".join(dict.fromkeys(there))
            options.error(f"--{name} {asked}: {chosen.campaign} has no such {name}; it has {known}")
    archive = chosen.results / campaign.place / f"{chosen.campaign}.jsonl"
    held = read_archive(archive) if archive.exists() else []
    cells = [
        (task, folder, config)
        for task, folder, config in cells
        if chosen.task in (None, task)
        and chosen.agent in (None, config.agent)
        and chosen.strategy in (None, config.replay.strategy)
        and not any(holds(record, config) for record in held)
    ]
    if not cells:
        print(f"nothing to do: {archive} holds every run of these options")
    for number, (task, folder, config) in enumerate(cells):
        scores = run(config, out / folder, cache=chosen.out / "pretrained")
        print(f"{number + 1:>4} of {len(cells)}  {folder}  {scores.pretrained:.1f} -> {scores.last:.1f}", flush=True)
        if number + 1 == len(cells) or cells[number + 1][0] != task:
            packed = pack([out], archive)
            print(f"     {archive}: {packed.runs} runs", flush=True)


if __name__ == "__main__":
    main()
