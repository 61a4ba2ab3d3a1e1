"""Make tables, figures and one HTML page from run folders."""

import argparse
from pathlib import Path

from arb.cli.options import command

EXAMPLES = """
examples:
  arb report runs                      every run below runs/, into report/index.html
  arb report runs/a runs/b -o compared
  arb report --pack runs -o results/iql.jsonl    one small file with all runs; add to it with the same command
  arb report results                             the same report, from archives
"""


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parser().parse_args(arguments)
    if options.pack:
        return _pack(options.runs, options.out or Path(f"{options.runs[0].resolve().name}.jsonl"))
    from arb.report.page import write_report

    out = options.out or Path("report")
    report = write_report(options.runs, out, title=options.title)
    print(report.text)
    print(f"page        {report.page}")
    print(f"files       {len(report.files)} in {out}, tables as txt, md, tex and csv, figures as png, svg and pdf")
    return 0


def _pack(runs: list[Path], out: Path) -> int:
    from arb.progress import count
    from arb.report.archive import pack

    packed = pack(runs, out)
    kept = f", {packed.kept} of them from before" if packed.kept else ""
    print(f"{out}: {count(packed.runs, 'run')}{kept}, {packed.size / 1e6:.2f} MB")
    for reason in packed.left_out:
        print(f"  left out: {reason}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = command("report", __doc__, EXAMPLES)
    options.add_argument(
        "runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs or sweeps, at any depth, or archives"
    )
    options.add_argument("-o", "--out", type=Path, help="folder of the report (report), or archive (NAME.jsonl)")
    options.add_argument("--pack", action="store_true", help="write all runs into one archive instead of a report")
    options.add_argument("--title", default="Offline-to-online runs compared", help="title of the page")
    return options
