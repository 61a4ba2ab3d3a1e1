"""The documentation is true: examples run, links lead somewhere, and what is made from the code is up to date."""

import contextlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

from arb.lab.config import PRESETS, Evaluation, Preset, Schedule

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def examples() -> list[tuple[str, str]]:
    found = []
    for page in sorted({*DOCS.rglob("*.md")} - {DOCS / "robot.md"}):  # test_robot_page.py runs it as a whole
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        found += [(f"{page.relative_to(DOCS)}-{i}", block) for i, block in enumerate(blocks)]
    return found


def leave_policies(folder: Path) -> None:
    """What a finished run leaves for whoever only plays its policies."""
    from arb.lab.folder import RunFolder
    from arb.policies.actors import Gaussian
    from arb.policies.export import POLICIES, export_policy
    from arb.policies.networks import MLP

    net = MLP((np.ones((3, 1), np.float32),), (np.zeros(1, np.float32),))
    scaling = types.SimpleNamespace(mean=None, std=None)
    actions = types.SimpleNamespace(discrete=False, middle=np.zeros(1, np.float32), half=np.ones(1, np.float32))
    for which in POLICIES:
        export_policy(RunFolder(folder).policy(which), Gaussian(net, np.zeros(1, np.float32)), scaling, actions)


@pytest.mark.parametrize(("name", "code"), examples(), ids=[name for name, _ in examples()])
def test_example_runs(name, code, tmp_path, monkeypatch):
    for framework in ("torch", "jax", "gymnasium", "h5py", "ray", "stable_baselines3"):
        if re.search(rf"^(import|from) {framework}\b", code, re.MULTILINE):
            pytest.importorskip(framework)
    plan = Schedule(pretrain=40, online=40, collect=20, updates=20, refresh=20, batch=16)
    monkeypatch.setitem(PRESETS, "smoke", Preset(plan, Evaluation(40, 1)))  # an example trains nothing of use
    monkeypatch.chdir(tmp_path)
    if "load_policy(" in code and "export_policy(" not in code:
        leave_policies(tmp_path / "runs" / "first")
    if "import ray\n" in code:  # Ray forks, of which JAX warns where earlier tests have imported it
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        return
    with warnings.catch_warnings():
        for host in ("torchrl", "d3rlpy"):
            if re.search(rf"^(import|from) {host}\b", code, re.MULTILINE):
                warnings.simplefilter("ignore")  # they warn of themselves, when imported and after
                pytest.importorskip(host)
        exec(compile(code, name, "exec"), {"__name__": "__main__"})


def test_the_readme_s_lines_run():
    import arb

    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    rng = np.random.default_rng(0)
    names = {
        "past": {
            "observations": rng.normal(size=(500, 3)),
            "actions": rng.uniform(-1, 1, size=(500, 2)),
            "rewards": np.ones(500),
            "terminals": np.arange(500) % 50 == 49,
        },
        "policy": lambda obs: (np.zeros((len(obs), 2)), np.zeros(2)),
        "obs": np.zeros(3),
        "action": np.zeros(2),
        "reward": 1.0,
        "next_obs": np.ones(3),
        "terminated": True,
        "truncated": False,
    }
    exec(compile(code.replace("1_200_000", "1000").replace("(1000, 256)", "(10, 256)"), "README.md", "exec"), names)
    assert isinstance(names["batches"], arb.Batch)
    assert names["batches"].obs.shape == (10, 256, 3)


def commands() -> list[str]:
    """Every `arb` command in the shell blocks of the pages, without the comment behind it."""
    pages = "\n".join(page.read_text() for page in PAGES)
    blocks = re.findall(r"^```bash\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return sorted({line.partition(" #")[0].strip() for line in lines if line.startswith("arb ")})


@pytest.mark.parametrize("line", commands())
def test_commands_on_the_pages_have_options_that_exist(line, capsys):
    """Reading the help of the command with these options does not start it."""
    from arb.cli import main

    command, *words = shlex.split(line)[1:]
    options = [word.partition("=")[0] for word in words if re.match("--?[a-z]", word)]
    with contextlib.suppress(SystemExit):
        main([command, *(words[:1] if command == "data" else []), "--help"])
    text = capsys.readouterr().out
    assert "usage: arb" in text
    assert [option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", text)] == []


def lines_with_settings() -> list[str]:
    """Commands of the pages, and of the commands' own help, that start runs with nobody's own code in them."""
    from arb.cli import run, sweep

    helped = [line.strip().partition("   ")[0] for line in f"{run.EXAMPLES}\n{sweep.SWEEP}".splitlines()]
    lines = [line for line in (*commands(), *helped) if re.match("arb (run|sweep) ", line)]
    return sorted({line for line in lines if not re.search("(agent|strategy) [^ ]*:", line)})


@pytest.mark.parametrize("line", lines_with_settings())
def test_settings_in_commands_on_the_pages_are_accepted(line):
    from arb.cli import parser_of
    from arb.cli.run import setting
    from arb.lab.config import configure
    from arb.lab.sweep import grid, split_list

    command, *words = shlex.split(line)[1:]
    asked = parser_of(command).parse_intermixed_args(words)
    settings = dict(setting(text) for text in asked.settings)
    if command == "run":
        configure(task=asked.task, agent=asked.agent, strategy=asked.strategy, preset=asked.preset, overrides=settings)
    else:
        axes = {name: split_list(values) for name, values in settings.items()}
        lists = [split_list(text) for text in (asked.task, asked.agent, asked.strategy)]
        grid(*lists, axes=axes, preset=asked.preset)


# ---- links -----------------------------------------------------------------------------------------------------------


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that the site gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading.replace("`", "").lower()).strip() for heading in headings]
    return {re.sub(r"[\s-]+", "-", heading) for heading in plain}


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        outside = page.is_relative_to(DOCS) and not target.is_relative_to(DOCS)  # the site has nothing but docs/
        if outside or not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_docs.DOCS", tmp_path)
    (tmp_path / "there.md").write_text("# A heading, with `code`\n")
    page = tmp_path / "page.md"
    page.write_text("[a](there.md) [b](there.md#a-heading-with-code) [c](gone.md) [d](there.md#gone) [e](../out.md)")
    (tmp_path.parent / "out.md").touch()
    assert broken(page) == ["gone.md", "there.md#gone", "../out.md"]


def test_every_page_is_in_the_navigation():
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


# ---- what is made from the code --------------------------------------------------------------------------------------


def maker():
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tools" / "pages.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_generated_pages_are_up_to_date():
    for path, text in maker().pages().items():
        assert path.read_text() == text, f"{path.name} is out of date: python tools/pages.py"


def test_the_picture_shows_every_package_above_what_it_may_import():
    from tests.test_package import LAYERS

    box = r'<g id="(\w+)"><rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"'
    boxes = re.findall(box, (DOCS / "architecture.svg").read_text())
    place = {name: tuple(map(int, numbers)) for name, *numbers in boxes}
    assert sorted(place) == sorted(itertools.chain(*LAYERS))
    for lower, upper in itertools.pairwise(LAYERS):
        assert min(place[name][1] for name in lower) >= max(place[name][1] for name in upper)
    for (x, y, w, h), (x2, y2, w2, h2) in itertools.combinations(place.values(), 2):
        assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y, "two boxes overlap"


def test_every_module_on_the_page_of_the_architecture_exists():
    named = re.findall(r"`([\w/]+\.py)`", (DOCS / "architecture.md").read_text())
    assert [name for name in named if not (ROOT / name).exists() and not (ROOT / "src" / "arb" / name).exists()] == []


def test_the_constraints_are_the_versions_behind_the_archives():
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for archive in sorted((ROOT / "results").rglob("*.jsonl")):
        for found in set(re.findall(r'"versions": ?({.*?})', archive.read_text())):
            stated = {name: version for name, version in json.loads(found).items() if name not in ("arb-rl", "python")}
            released = {name: version.partition("+")[0] for name, version in stated.items()}  # without "+cpu"
            assert released == {name: pinned[name] for name in stated}, archive.name


def test_the_citation_names_this_version():
    import arb

    assert f"version: {arb.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_a_page_without_the_place_for_a_table_is_refused():
    fill = maker().filled
    assert fill("a\n<!-- x -->\nold\n<!-- end of x -->\nb", "x", "new") == "a\n<!-- x -->\nnew\n<!-- end of x -->\nb"
    with pytest.raises(ValueError, match="no place for y"):
        fill("<!-- x -->\n<!-- end of x -->", "y", "new")


def defined(section: str) -> list[str]:
    """The names in the first column of the tables in a section of the page of metrics."""
    text = (DOCS / "reference" / "metrics.md").read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    first = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for cell in first for name in re.findall(r"`(\w+)`", cell)]


def test_every_replay_metric_is_defined_once():
    import arb
    from arb.lab.metrics import LOGGED
    from arb.lab.strategies import STRATEGIES

    buffer = arb.ReplayBuffer(10, arb.ARB("auto"))
    buffer.add(np.zeros(2), np.zeros(1), 0.0, np.ones(2), terminated=True)
    buffer.refresh(lambda obs, action: np.zeros(len(obs)))
    buffer.sample(4)
    own = {name for row in STRATEGIES.values() for name in row.metric_names}
    names = defined("Replay")
    assert len(names) == len(set(names))
    assert set(names) == {*LOGGED, *own, *buffer.stats(), "policy_version"}


def test_every_metric_of_an_update_is_defined_once():
    jax = pytest.importorskip("jax")
    import arb
    from arb.lab.agents import AGENTS, agent_class, settings_class

    row = np.zeros((2,), np.float32)
    obs, action = np.zeros((2, 3), np.float32), np.zeros((2, 2), np.float32)
    batch = arb.Batch(obs, action, row, obs, row, row)
    logged = set()
    for name in AGENTS:
        make = agent_class(name).create

        def update(key, make=make, name=name):
            agent = make(key, 3, 2, settings_class(name)())
            return agent.update(batch, key)[1]

        logged |= jax.eval_shape(update, jax.random.key(0)).keys()
    names = defined("Updates")
    assert len(names) == len(set(names))
    assert set(names) == logged


def test_every_result_and_every_column_of_an_evaluation_is_defined():
    from arb.lab.folder import Result

    told = {*defined("Evaluations"), *defined("Results")}
    assert {*Result._fields, "episode", "return", "score", "success"} <= told


def test_every_file_of_a_run_is_on_its_page():
    from arb.lab.folder import POLICIES, RunFolder

    page = (DOCS / "reference" / "files.md").read_text()
    files = [value.name for value in vars(RunFolder("x")).values() if value.name not in ("x", "policy")]
    for name in [*files, *(f"policy/{file}" for file in POLICIES.values())]:
        assert f"`{name}`" in page or f"`{name}/`" in page, name


def test_examples_in_docstrings_become_code_on_the_site():
    pytest.importorskip("griffe")  # comes with the extra `docs`
    spec = importlib.util.spec_from_file_location("doctests", ROOT / "tools" / "doctests.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = made.fenced("About:\n\n>>> 1 + 1\n2\n\nArgs:\n    x: one.")
    assert text == "About:\n\n```pycon\n>>> 1 + 1\n2\n```\n\nArgs:\n    x: one."
