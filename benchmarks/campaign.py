"""The runs behind docs/results.md and docs/temperature.md: grids of runs on the suite, packed into archives.

    python benchmarks/campaign.py temperature              which temperature: fixed or held
    python benchmarks/campaign.py locomotion --seeds 0-2   IQL on the suite's twelve locomotion datasets
    python benchmarks/campaign.py --list                   all campaigns, with their number of runs
    python benchmarks/campaign.py temperature --quick      two short runs, to see that it works

Seeds are outermost, then datasets, so that what is there can be read at any time. Runs go one after the other in one
process and share compiled programs; start a second process on another core with other seeds. The same command again
continues where it was stopped: runs that the archive under `results/` holds are not done again, on whatever machine
they were made, and the archive grows after every dataset.
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

ROBOTS, QUALITIES = ("hopper", "walker2d", "halfcheetah"), ("random", "mixed", "medium", "medium-expert")
SETS = tuple(f"suite:{robot}-{quality}" for robot in ROBOTS for quality in QUALITIES)
HOPPER = SETS[:4]
MAZES = ("suite:antmaze-umaze-play", "suite:antmaze-medium-play")
PAPER = ("naive", "parallel", "top_n", "berb", "arb", "arb_auto")
RIVALS = ("annealed", "recent", "warm_start:WarmStart", "road:Road")
"""The last two are plug-ins in examples/strategies."""
FEW = ("naive", "parallel", "arb", "arb_auto")
LONG: Settings = {
    "schedule.pretrain": 40_000,
    "schedule.online": 40_000,
    "schedule.batch": 128,
    "settings.hidden_dims": (128, 128),
    "evaluation.every": 2_000,
    "evaluation.episodes": 4,
}
"""Half the width and half the batch of the paper: a run costs one core about a minute, not five. Episodes of one policy
resemble each other and policies 2,000 updates apart do not, so many evaluations have few episodes each."""
SPARSE: Settings = {"evaluation.every": 5_000, "evaluation.episodes": 10}
"""A goal is reached or not, so that four episodes say little."""
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
    settings: Settings = field(default_factory=lambda: LONG)
    place: str = "."
    """Folder of the archive, below that of the others; the results page takes none from there."""

    def cells(self, seeds: Sequence[int]) -> Iterator[tuple[str, str, Config]]:
        """Dataset, folder below the campaign's, and configuration of every run, in the order in which they are done."""
        for seed in seeds:
            for task in self.tasks:
                for agent in self.agents:
                    for name, (strategy, own) in self.conditions.items():
                        settings = {**self.settings, **own}
                        config = configure(task=task, agent=agent, strategy=strategy, seed=seed, overrides=settings)
                        yield task, f"{task.replace(':', '-')}/{agent}/{name}/seed-{seed}", config

    def quick(self) -> Campaign:
        """The first two conditions on a few thousand bundled rows, with next to no training."""
        few = dict(list(self.conditions.items())[:2])
        return replace(self, conditions=few, tasks=("bundled:hopper-tiny",), agents=self.agents[:1], settings=QUICK)


def _plain(strategies: Sequence[str]) -> dict[str, tuple[str, Settings]]:
    return {name.partition(":")[0]: (name, {}) for name in strategies}


TEMPERATURES: dict[str, tuple[str, Settings]] = {
    **_plain(("naive", "parallel", "top_n")),
    **{f"arb-{value}": ("arb", {"replay.temperature": value}) for value in (0.2, 0.5, 2.0)},
    **{f"auto-{share}": ("arb_auto", {"replay.effective": share}) for share in (0.05, 0.1, 0.25, 0.5)},
}
BOUNDS: tuple[tuple[float, float], ...] = ((-12.0, 2.0), (-12.0, 12.0), (-16.0, 7.0), (-7.0, 7.0))
"""Of the score, beside the paper's (-12, 7)."""
ABLATIONS: dict[str, tuple[str, Settings]] = {
    **_plain(("naive", "arb")),
    "transition": ("arb", {"replay.level": "transition"}),
    "density": ("arb", {"replay.likelihood": "density"}),
    **{
        f"{likelihood}-{low:g}-{high:g}": ("arb", {"replay.likelihood": likelihood, "replay.clip": (low, high)})
        for likelihood in ("standard", "density")
        for low, high in BOUNDS
    },
}
CAMPAIGNS = {
    "temperature": Campaign("which temperature: fixed or held", TEMPERATURES, HOPPER),
    "locomotion": Campaign("IQL on the suite's twelve locomotion datasets", _plain(PAPER)),
    "rivals": Campaign("the same with four other rivals", _plain(("naive", "arb", "arb_auto", *RIVALS))),
    "agents": Campaign("PEX and FamO2O on four datasets", _plain(FEW), HOPPER, ("pex", "famo2o")),
    "antmaze": Campaign(
        "AntMaze umaze and medium, with β = 1: with the paper's 10, IQL learns nothing offline here",
        _plain(FEW),
        MAZES,
        ("iql", "pex"),
        {**LONG, **SPARSE, "schedule.online": 50_000, "settings.beta": 1.0},
    ),
    "antmaze-paper": Campaign(
        "AntMaze umaze with the paper's β = 10",
        _plain(FEW),
        MAZES[:1],
        settings={**LONG, **SPARSE, "schedule.pretrain": 100_000, "schedule.online": 50_000},
    ),
    "calql": Campaign(
        "Cal-QL, whose updates cost 25 times as much, at a tenth of the budget",
        _plain(FEW),
        HOPPER[1:3],
        ("calql",),
        {
            **{name: value for name, value in LONG.items() if name != "settings.hidden_dims"},
            "settings.actor_hidden_dims": (128,) * 3,
            "settings.critic_hidden_dims": (128,) * 3,
            "schedule.pretrain": 4_000,
            "schedule.online": 4_000,
            "evaluation.every": 400,
        },
    ),
    "ablations": Campaign("weights by trajectory or transition, bounds of the score", ABLATIONS, HOPPER[1:2]),
    "flagship": Campaign(
        "the paper's largest claim at ten times the budget",
        _plain(FEW),
        HOPPER[:1],
        settings={**LONG, "schedule.pretrain": 400_000, "schedule.online": 400_000, "evaluation.every": 20_000},
    ),
    "foresight": Campaign(
        "FamO2O on other robots: does the first refresh tell where ARB auto gains?",
        _plain(("naive", "arb_auto")),
        tuple(f"suite:{robot}-{quality}" for robot in ROBOTS[1:] for quality in ("mixed", "medium")),
        ("famo2o",),
    ),
    "foresight-again": Campaign(
        "the same question on all eight datasets of these robots; for seeds 2 and 3",
        _plain(("naive", "arb_auto")),
        SETS[4:],
        ("famo2o",),
    ),
    "pex": Campaign(
        "PEX on other robots: does it gain there as it does on hopper?",
        _plain(("naive", "arb", "arb_auto")),
        SETS[4:],
        ("pex",),
    ),
    "reference": Campaign(
        "reference scores of the suite: behaviour cloning, which is IQL at β = 0, and IQL, offline",
        {"cloning": ("naive", {"settings.beta": 0.0}), "iql": ("naive", {})},
        tuple(SUITE),
        settings={**LONG, "schedule.online": 1},
        place="offline",
    ),
    "volume": Campaign(
        "updates per step",
        {
            f"{strategy}-{updates}": (strategy, {"schedule.updates": updates})
            for updates in (250, 1000, 4000)
            for strategy in FEW
        },
        ("suite:hopper-mixed",),
    ),
}


def holds(record: Record, config: Config) -> bool:
    """Whether a finished run of an archive is that of a configuration."""
    archived = (record.status, record.config.get("task"), record.agent, record.strategy, record.seed)
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
            print(f"{name:<12} {campaign.purpose}: {runs} runs per seed")
        return
    campaign, out = CAMPAIGNS[chosen.campaign], chosen.out / chosen.campaign
    cells = list(campaign.quick().cells(seeds[:1]) if chosen.quick else campaign.cells(seeds))
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
        print(f"nothing to do: {archive} holds every run of these options, or no run has them (see --list)")
    for number, (task, folder, config) in enumerate(cells):
        scores = run(config, out / folder, cache=chosen.out / "pretrained")
        print(f"{number + 1:>4} of {len(cells)}  {folder}  {scores.pretrained:.1f} -> {scores.last:.1f}", flush=True)
        if number + 1 == len(cells) or cells[number + 1][0] != task:
            packed = pack([out], archive)
            print(f"     {archive}: {packed.runs} runs", flush=True)


if __name__ == "__main__":
    main()
