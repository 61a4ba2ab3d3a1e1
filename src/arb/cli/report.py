"""`arb report` and `arb watch`."""

import argparse
import time
from pathlib import Path

from arb.errors import DataError
from arb.progress import count

EXAMPLES = """
examples:
  arb report runs                      every run below runs/, into report/index.html
  arb report runs/a runs/b -o compared
  arb report --pack runs -o results/iql.jsonl    one small file with all runs; add to it with the same command
  arb report results/iql.jsonl                   the same report, from an archive
"""


def add_report(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    runs = "folders of runs or sweeps, at any depth, or archives"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help=runs)
    parser.add_argument("-o", "--out", type=Path, help="folder of the report (report), or archive (NAME.jsonl)")
    parser.add_argument("--pack", action="store_true", help="write all runs into one archive instead of a report")
    parser.add_argument("--title", default="Offline-to-online runs compared", help="title of the page")
    parser.set_defaults(run=report)


def report(options: argparse.Namespace) -> None:
    if options.pack:
        from arb.report.records import pack

        out = options.out or Path(f"{options.runs[0].resolve().name}.jsonl")
        packed = pack(options.runs, out)
        kept = f", {packed.kept} of them from before" if packed.kept else ""
        print(f"{out}: {count(packed.runs, 'run')}{kept}, {packed.size / 1e6:.2f} MB")
        print("".join(f"  left out: {reason}\n" for reason in packed.left_out), end="")
    else:
        from arb.report.page import make_report

        out = options.out or Path("report")
        made = make_report(options.runs, out, title=options.title)
        print(f"{made.text}\npage        {made.page}")
        print(f"files       {len(made.files)} in {out}, tables as txt, md, tex and csv, plots as png, svg and pdf")


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Open the page in a browser: it follows the runs below the folders until all are finished."
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs or sweeps, at any depth")
    parser.add_argument("-o", "--out", type=Path, default=Path("watch"), help="folder of the page (watch)")
    parser.add_argument("--every", type=int, default=10, metavar="SECONDS", help="between two looks (10)")
    parser.set_defaults(run=watch)


def watch(options: argparse.Namespace) -> None:
    from arb.report.page import live_page

    if options.every < 1:
        raise DataError("--every must be at least 1 second")
    finished = live_page(options.runs, options.out, options.every)
    print(f"{options.out / 'index.html'} is written anew every {options.every} s; Ctrl-C ends", flush=True)
    while not finished:
        time.sleep(options.every)
        finished = live_page(options.runs, options.out, options.every)
    live_page(options.runs, options.out, 0)
    print("all runs are finished")
