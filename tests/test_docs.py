"""The examples in the documentation run as they stand."""

import re
import warnings
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def examples() -> list[tuple[str, str]]:
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        found += [(f"{page.relative_to(DOCS)}-{i}", block) for i, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize(("name", "code"), examples(), ids=[name for name, _ in examples()])
def test_example_runs(name, code, tmp_path, monkeypatch):
    for framework in ("torch", "jax", "gymnasium", "h5py", "stable_baselines3"):
        if re.search(rf"^(import|from) {framework}\b", code, re.MULTILINE):
            pytest.importorskip(framework)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        for host in ("torchrl", "d3rlpy"):
            if re.search(rf"^(import|from) {host}\b", code, re.MULTILINE):
                warnings.simplefilter("ignore")  # they warn of themselves, when imported and after
                pytest.importorskip(host)
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
