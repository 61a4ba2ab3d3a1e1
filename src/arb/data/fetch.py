"""Where datasets are on this machine, and the download of D4RL's: progress, resume, mirrors, checksums."""

import http.client
import os
import re
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from arb.data.formats import first_line
from arb.data.tasks import Task, find_task
from arb.errors import DataError
from arb.files import sha256_of
from arb.progress import progress

BLOCK, TIMEOUT_SECONDS = 1 << 20, 30
BUNDLED = Path(__file__).parent / "bundled"


def cache_directory() -> Path:
    """`$ARB_CACHE`, or `arb` in the user's cache directory."""
    if "ARB_CACHE" in os.environ:
        return Path(os.environ["ARB_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arb"


def cached(task: Task) -> Path:
    """Where a task's file is, or is to be: here, or where D4RL has already put it."""
    theirs = Path.home() / ".d4rl" / "datasets" / task.file
    return theirs if theirs.exists() else cache_directory() / task.file


def bundled_names() -> list[str]:
    return sorted(path.stem for path in BUNDLED.glob("*.hdf5"))


def bundled(name: str) -> Path:
    if name not in bundled_names():
        raise DataError(f"no bundled dataset is called {name!r}; there are {', '.join(bundled_names())}")
    return BUNDLED / f"{name}.hdf5"


def fetched(name: str) -> Path:
    """The file of a D4RL task; one that was not downloaded is a `DataError`."""
    task = find_task(name)
    path = cached(task)
    if not path.exists():
        raise DataError(f"{task.name} is not here yet: run 'arb data fetch {task.name}', or put {task.file} at {path}")
    return path


def fetch(task: Task, mirrors: tuple[str, ...] = ()) -> Path:
    """The file of a task, downloaded unless it is there. `mirrors` are directories of files, tried first.

    What an interrupted download brought is kept beside the file (`.part`) and continued by the next one.
    """
    for mirror in mirrors:
        if not re.fullmatch(r"https?://[\w.-]+(:\d+)?(/[!-~]*)?", mirror, re.ASCII):
            raise DataError(f"{mirror!r} is not a mirror: give the address of a folder, such as https://host/folder")
    path = cached(task)
    if path.exists():
        check(path, task)
        return path
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for url in (*(f"{mirror.rstrip('/')}/{task.file}" for mirror in mirrors), *task.urls):
        try:
            _download(url, part, task)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            failures.append(f"{urlsplit(url).netloc}: {first_line(problem)}")
            continue
        part.replace(path)
        return path
    kept = f"; {part.stat().st_size:,} bytes are kept, and the same command continues" if part.exists() else ""
    raise DataError(f"{task.name} could not be fetched ({'; '.join(failures)}{kept}); or put {task.file} at {path}")


def _download(url: str, part: Path, task: Task) -> None:
    """Download and check, from where an earlier attempt stopped; if another server left that, from the start."""
    have = part.stat().st_size if part.exists() else 0
    if have < task.size:
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            resumed = response.status == http.client.PARTIAL_CONTENT
            if not resumed and response.length is not None and response.length != task.size:
                raise DataError(
                    f"it offers {response.length:,} bytes, {task.name} has {task.size:,}: not the same file"
                )
            with progress(task.name, task.size) as tell, part.open("ab" if resumed else "wb") as file:
                while file.tell() <= task.size and (block := response.read1(BLOCK)):
                    file.write(block)
                    tell(file.tell())
        if part.stat().st_size < task.size:
            raise DataError(
                f"only {part.stat().st_size:,} of {task.size:,} bytes arrived; run the command again to continue"
            )
    try:
        check(part, task)  # removes it if it is not the file
    except DataError:
        if not have:
            raise
        _download(url, part, task)


def check(path: Path, task: Task) -> None:
    """Size and SHA-256 of a file; a partial download that fails is removed, a file of the user's is not."""
    found = path.stat().st_size
    problem = f"{path} has {found:,} bytes, {task.name} has {task.size:,}" if found != task.size else ""
    if not problem and sha256_of(path) != task.sha256:
        problem = f"{path} has another SHA-256 sum than {task.name}"
    if problem and path.suffix == ".part":
        path.unlink()
    if problem:
        raise DataError(f"{problem}: remove it and fetch again")
