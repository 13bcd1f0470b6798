"""What the handlers of a console share: settings, threads, the log, the application and its stores."""

import asyncio
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from headrace.app.status import FollowedFolder, read_description
from headrace.client import Connection, Identity
from headrace.client.topics import RecordCounter
from headrace.clock import Clock, SystemClock
from headrace.console.context.application import ApplicationFolder
from headrace.console.context.log_clients import LogClients
from headrace.console.context.questions import Questions
from headrace.console.http_metrics import HttpMetrics
from headrace.console.problems import ProblemError
from headrace.console.push import ReadCaches, SendBuffers, Subscriptions, Watches
from headrace.console.security import LOCAL, NOBODY, Principal
from headrace.console.settings import ConsoleSettings
from headrace.console.users import UsersFile
from headrace.console.workers import Workers
from headrace.console.write import CommandWriter, RecordWriter
from headrace.objects import is_url

__all__ = ["ConsoleContext"]

CLIENT_ID = "headrace-console"
_COUNTED_BYTES = 16 << 20  # of a partition of dead letters at each look, until all are counted
# A user who looks at the log wants to hear soon that it is away.
_RETRY_TIMEOUT_MS = 3_000


@dataclass(slots=True, kw_only=True)
class ConsoleContext:
    """Made once for a console; `close` gives everything back.

    `states` are questions to an entity type's code, `traces` those that need a Spark.
    Methods of `clients` and `application` block: call them through `workers.run`.
    `stopping` is set when the console ends, and streams end with it. Subscriptions read
    under `page_reads`, so that other requests find a thread free.
    """

    settings: ConsoleSettings
    connection: Connection
    workers: Workers
    clients: LogClients
    application: ApplicationFolder
    writer: RecordWriter
    commands: CommandWriter
    states: Questions
    traces: Questions
    send_buffers: SendBuffers
    subscriptions: Subscriptions
    page_reads: asyncio.Semaphore
    clock: Clock
    users: UsersFile | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    http: HttpMetrics = field(default_factory=HttpMetrics)
    watches: Watches = field(default_factory=Watches)
    read_caches: ReadCaches = field(default_factory=ReadCaches)
    dead_letter_counts: RecordCounter = field(default_factory=lambda: RecordCounter(_COUNTED_BYTES))
    record_counts: RecordCounter = field(default_factory=lambda: RecordCounter(_COUNTED_BYTES))
    record_times: dict[tuple[str, int], tuple[int, int | None]] = field(default_factory=dict)
    _ending: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(cls, settings: ConsoleSettings, identity: Identity) -> "ConsoleContext":
        """As the settings say; raises ConfigError. Asks the log nothing."""
        followed = FollowedFolder(settings.data) if is_url(settings.data) else None
        folder = Path(settings.data) if settings.data else None
        if followed is not None:
            folder = followed.path
        connection = Connection(
            bootstrap_servers=settings.bootstrap or _bootstrap(folder),
            client_id=CLIENT_ID,
            retry_timeout_ms=_RETRY_TIMEOUT_MS,
            **identity.identity_fields(),
        )
        clock, patience_s = SystemClock(), settings.question_timeout_ms / 1000
        workers = Workers(settings.threads, settings.max_waiting)
        made = cls(
            settings=settings,
            connection=connection,
            workers=workers,
            clients=LogClients(connection, clock),
            application=ApplicationFolder(folder, connection, is_copy=followed is not None),
            writer=RecordWriter(connection, workers),
            commands=CommandWriter(connection, workers),
            states=Questions("states of an entity", at_a_time=2, timeout_s=patience_s),
            traces=Questions("records behind a row", at_a_time=1, timeout_s=patience_s),
            send_buffers=SendBuffers(settings.max_buffered_bytes, max(1, settings.reader_buffer_bytes // 2)),
            subscriptions=Subscriptions(settings.max_subscribers),
            page_reads=asyncio.Semaphore(max(1, settings.threads // 4)),
            clock=clock,
            users=UsersFile(Path(settings.users)) if settings.users else None,
        )
        if followed is not None:
            followed.follow()
            made.on_close(followed.close)
        return made

    def principal(self, token: str | None, *, by_token: bool) -> Principal:
        """Who presents this token; everybody is local where there are no users."""
        if self.users is None:
            return LOCAL
        return NOBODY if token is None else self.users.principal(token, by_token=by_token)

    def stop(self) -> None:
        """Lets every subscription end; the console is about to."""
        self.stopping.set()
        self.watches.wake_all()

    def command(self, name: str, **fields: Any) -> None:
        """Passes a command to the console's parent process; raises ProblemError with 409 if there is none.

        A line of JSON on standard output: `{"command": "rebuild", …}`.
        """
        if not self.settings.commands:
            raise ProblemError(
                409,
                "this console was started on its own and cannot control the application",
                f"restart the application with: headrace run FILE --{name}",
                kind="no-driver",
            )
        sys.stdout.buffer.write(orjson.dumps({"command": name, **fields}) + b"\n")
        sys.stdout.buffer.flush()

    def on_close(self, call: Any) -> None:
        """Has `call` called when the console ends."""
        self._ending.callback(call)

    def close(self) -> None:
        """Ends the threads and closes stores and clients."""
        self.writer.close()
        self.commands.close()
        self.workers.close()
        self._ending.close()
        self.clients.close()
        self.application.close()


def _bootstrap(folder: Path | None) -> str:
    """The log of the application in the folder, or the default."""
    described = None if folder is None else read_description(folder)
    return Connection().bootstrap_servers if described is None else described.bootstrap
