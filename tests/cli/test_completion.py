import subprocess

import pytest
import shtab

from arb.cli.completion import tree


def completed(*words: str) -> set[str]:
    """What bash offers after these words."""
    line = " ".join(f"'{word}'" for word in words)
    program = f"""{shtab.complete(tree(), "bash")}
COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_arb; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("arb", "ru"), {"run"}),
        (("arb", "run", "--str"), {"--strategy"}),
        (("arb", "run", "--strategy", "p"), {"parallel"}),
        (("arb", "run", "-a", ""), {"iql", "calql", "pex", "famo2o", "sac", "rlpd", "fql", "qcfql"}),
        (("arb", "sweep", "--dry"), {"--dry-run"}),
        (("arb", "compare", "-p", "sm"), {"smoke", "small"}),
        (("arb", "reproduce", "t"), {"trajectory", "temperature"}),
        (("arb", "reproduce", "clip", "--preset", "p"), {"paper"}),
        (("arb", "run", "--task", "antmaze-large"), {"antmaze-large-play-v2", "antmaze-large-diverse-v2"}),
    ],
)
def test_bash_completes(words, offered):
    assert completed(*words) == offered
