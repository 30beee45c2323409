"""Bring what a run of deep checks found to nhc's server as the agent does; `nhc.store.deep_delivery` has the way
straight into a store.

So each node's last deep verdict has an age there. A delivery that fails is reported, and does not change the verdict.
"""

from __future__ import annotations

import time
from typing import Callable, List

from nhc.core.command_line.options import UsageError
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report
from nhc.core.settings.settings_file import SettingsError
from nhc.core.settings.settings_file import load as load_settings
from nhc.marks import push
from nhc.marks.ports.adapter import AdapterError

if TYPE_CHECKING:
    from nhc.agent.server_push import Pusher, PushSettings
    from nhc.agent.spool import Spool

TRIES = (0.0, 2.0, 10.0)
"""Seconds before each try to reach the server: a run of an hour is worth a quarter of a minute."""
IN_USE = 60.0
"""Seconds to wait for another process that sends what waits: the agent takes it over in a moment, a run's three tries
take longer."""


def push_settings(path: str) -> PushSettings:
    """What [sinks.server] of a file like agent.toml says. Raises UsageError.

    Read before the node is tested: an hour's results would be lost to a path that is mistyped.
    """
    try:
        from nhc.agent.server_push import read_push_settings
    except ImportError as error:
        raise UsageError(f"--server needs the extra nodehealth[remedy]: {error}") from None
    try:
        tables = load_settings(path).table("sinks").tables()
        if "server" not in tables:
            raise UsageError(f"{path}: there is no [sinks.server]")
        return read_push_settings(tables["server"].raw())
    except (SettingsError, AdapterError) as error:
        raise UsageError(str(error)) from None


def to_server(report: Report, suite: str, settings: PushSettings, sleep: Callable[[float], None] = time.sleep) -> str:
    """Push a report to the server of these settings; why not, "" where it was.

    It waits on the disk until the server has taken it, with those of earlier runs: the next run sends it.
    """
    from nhc.agent.deep_spool import deep_spool
    from nhc.agent.server_push import Hopeless, NotNow, Pusher

    pusher, now = Pusher(settings), time.time()
    text = push.to_text(push.Pushed(report, not report.not_run, now, suite))

    def tried(work: Callable[[], List[str]]) -> List[str]:
        for wait in TRIES[:-1]:
            sleep(wait)
            try:
                return work()
            except NotNow:
                pass
        sleep(TRIES[-1])
        return work()

    try:
        with deep_spool(settings.spool, settings.spool_size, settings.spool_age, IN_USE) as spool:
            spool.add(text, now)
            try:
                refused = tried(lambda: _send_all(spool, pusher, report.host))
            except NotNow as error:
                what = "the results wait" if len(spool) == 1 else f"the results of {len(spool)} runs wait"
                return f"{error}: {what} in {spool.directory} for the agent, or the next run, to send them"
    except OSError as error:  # the disk takes nothing: sent at once it is not lost
        kept = f"{error.filename or settings.spool}: {error.strerror}"
        try:
            refused = tried(lambda: pusher.push(push.pack(report.host, [text])).refused)
        except (NotNow, Hopeless) as failure:
            return f"{failure}: the results are not sent, nor kept ({kept})"
    finally:
        pusher.close()
    return f"the server refuses the results: {refused[0]}" if refused else ""


def _send_all(spool: Spool, pusher: Pusher, node: str) -> List[str]:
    """Send all that waits, the oldest first; what the server refused for good, a line each. Raises NotNow."""
    from nhc.agent.server_push import Hopeless
    from nhc.agent.server_sink import BATCH

    refused: List[str] = []
    count = BATCH
    while len(spool):
        files, texts = spool.oldest(count)
        if not texts:
            continue  # damaged ones: they are dropped by now
        lost = spool.lost
        try:
            refused += pusher.push(push.pack(node, texts, lost)).refused
        except Hopeless as error:
            if len(texts) > 1:
                count = 1  # one of them is what it does not take: the others go one by one
                continue
            refused.append(str(error))
            spool.count_lost(1)
        else:
            spool.forget_lost(lost)
        spool.remove(files)
    return refused
