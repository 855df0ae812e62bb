"""Hostile environments: shell text, variables, Python and names of files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

DONE, REFUSED = (0,), (0, 2)
STOPPED = (0, 2, 129, 130, 141, 143)
NAMES = (
    *("layers.0.mlp.weight", "new\nline.weight", "return\rtab\t", "red\x1b[31m", "c1\x9b31m"),
    *("bidi\u202etfel", "isolate\u2066x", "zero\u200bwidth", "line\u2028sep", "nul\0", "-o", "CON"),
    *("aux.safetensors", "dot. ", "../up", "a/b", "日本語", "\ufeffbom", "tag\U000e0041"),
)
FORMS = ("", "--markdown", "--csv", "--json", "-vv")
# Python that runs before the verb.
REFUSING = """
import errno, fcntl, os
def refuse(*_): raise OSError(errno.{0}, os.strerror(errno.{0}))
os.fsync = fcntl.flock = fcntl.lockf = refuse
"""
BACKWARDS = """
import itertools, time
number = itertools.count()
time.time = lambda: 1e9 - 3600.0 * next(number)
"""
SIGNAL = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import tensorcomp_cli.progress as shown
begin = shown.Watch.begin
def stop(*given):
    os.kill(os.getpid(), signal.{0})
    begin(*given)
shown.Watch.begin = stop
"""
GO = 'exec "$@"'
# Root may write anywhere, unless it gives that up.
POWERLESS = f'[ "$(id -u)" != 0 ] || exec setpriv --inh-caps=-all --bounding-set=-all "$@"; {GO}'
NO_SHM = f"""exec unshare -rm sh -c 'mount -t tmpfs -o ro none /dev/shm && {GO}' sh "$@" """


@dataclass(frozen=True)
class Environment:
    """Surroundings of a run: shell text that starts it, variables, Python, names of files."""

    name: str
    shell: str = GO
    variables: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    statuses: Sequence[int] = DONE
    model: str = "model.safetensors"
    output: str = "out"
    forms: Sequence[str] = ("",)


def environments() -> Iterator[Environment]:
    """Yield all environments."""
    yield Environment("as usual", forms=FORMS)
    yield Environment("no HOME", f"unset HOME; {GO}")
    for setting in (
        *("HOME=/proc", "TMPDIR=/nowhere", "LC_ALL=POSIX", "LANG=nonesuch", "PYTHONUTF8=0"),
        *("PYTHONIOENCODING=ascii:strict", "PYTHONOPTIMIZE=2", "PYTHONHASHSEED=1"),
        *("PYTHONDEVMODE=1", "PYTHONWARNINGS=error", "TERM=dumb", "NO_COLOR=1", "COLUMNS=1"),
    ):
        yield Environment(setting, variables=dict([setting.split("=")]))
    yield Environment(
        "no variables", 'exec env -i PYTHONPATH="$PYTHONPATH" PYTHONDONTWRITEBYTECODE=1 "$@"'
    )
    yield Environment("read-only installation", POWERLESS, {"PYTHONPATH": "INSTALLED"})
    for number, stream in enumerate(("stdin", "stdout", "stderr")):
        yield Environment(f"{stream} closed", f"{GO} {number}>&-")
    yield Environment("all streams closed", f"{GO} 0>&- 1>&- 2>&-")
    yield Environment("full stdout", f"{GO} >/dev/full", statuses=REFUSED)
    yield Environment("full stderr", f"{GO} 2>/dev/full")
    yield Environment("stdout without a reader", f"{GO} > >(exec true)", statuses=STOPPED)
    yield Environment("no /dev/shm", NO_SHM)
    yield Environment("umask 077", f"umask 077; {GO}")
    yield Environment("umask 000", f"umask 000; {GO}")
    yield Environment("files of 1 KiB at most", f"ulimit -f 1; {GO}", statuses=REFUSED)
    yield Environment("64 file descriptors", f"ulimit -n 64; {GO}")
    gone = f"mkdir gone; cd gone; rmdir ../gone; {GO}"
    yield Environment("current folder gone", gone, statuses=REFUSED)
    for code in ("EINVAL", "ENOTSUP", "ENOSYS"):
        yield Environment(f"no locks, no fsync ({code})", python=REFUSING.format(code))
    yield Environment("clock runs backwards", python=BACKWARDS)
    for signal in ("SIGTERM", "SIGHUP", "SIGINT"):
        yield Environment(f"{signal} at work", python=SIGNAL.format(signal), statuses=STOPPED)
    names = ("new\nline", "red\x1b[31m", "bidi\u202etfel", "bad\udcff", "-o", "CON", "NUL")
    for name in (*names, "aux.safetensors", "dot.", "space ", "日本", "x" * 255):
        shown = repr(name[:20])
        yield Environment(f"input {shown}", model=name, forms=("", "--json", "-vv"))
        yield Environment(f"output {shown}", output=name, forms=("", "--json"))
    yield Environment("output of 256 bytes", output="x" * 256, statuses=REFUSED)
    deep = "/".join(["d" * 250] * 15)
    yield Environment("paths of 3,800 bytes", model=f"{deep}/model", output=f"{deep}/out")
    for place in ("MODEL", "OUT", "PACKED", "FOLDER"):
        loop = f'rm -rf "${place}"; ln -s "${place}" "${place}"; {GO}'
        yield Environment(f"{place} is a loop of links", loop, statuses=REFUSED)
        dangling = f'rm -rf "${place}"; ln -s nowhere "${place}"; {GO}'
        yield Environment(f"{place} is a dangling link", dangling, statuses=REFUSED)
