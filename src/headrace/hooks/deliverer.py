"""Runs all hooks of an application: takes over their state, and turns them on and off.

There is one deliverer per application; a second one takes over, and the first ends
(`headrace.hooks.log.state_writer`). A hook that cannot deliver (its topic or a secret is
missing) says so in its state and waits, while the others continue.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from random import Random

from headrace.client import LARGE_RECORD_CONFIGS, Connection
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.clock import Clock, SystemClock
from headrace.errors import ConfigError, CorruptionError, HeadraceError
from headrace.event_loop import stop_on_signals
from headrace.hooks.hook import Email, Hook, hook_dead_topic, hook_group, state_topic
from headrace.hooks.hook_run import HookRun, note_identities
from headrace.hooks.log import (
    FollowedTopic,
    HookReader,
    HookRecord,
    HookState,
    HookSwitch,
    StateRecords,
    StateWriter,
    TopicLookup,
    apply_record,
    read_state,
)
from headrace.hooks.send import EmailSender, HookSender, WebhookSender

__all__ = ["Deliverer", "create_hook_topics", "make_sender", "run_deliverer"]

_LOOK_AGAIN_S = 1.0
_POLL_S = 0.25
_STOP_TIMEOUT_S = 5.0
_THREADS = 64  # a reader for each hook blocks one of them most of the time


def create_hook_topics(connection: Connection, app: str) -> None:
    """Creates the state topic and the dead-letter topic of an application's hooks, if they are missing."""
    wanted = {
        state_topic(app): TopicSettings(
            partitions=1, configs={"cleanup.policy": "compact", **LARGE_RECORD_CONFIGS}
        ),
        hook_dead_topic(app): TopicSettings(partitions=1, configs=LARGE_RECORD_CONFIGS),
    }
    ensure_topics(connection, wanted)


def make_sender(hook: Hook, environment: Mapping[str, str] | None = None) -> HookSender:
    """The sender for the hook's target; raises ConfigError if a secret is missing."""
    if isinstance(hook.target, Email):
        return EmailSender(hook.target, environment=environment)
    return WebhookSender(hook.target, environment=environment)


@dataclass(slots=True)
class _ManagedHook:
    """A hook with its state, and its current run."""

    hook: Hook
    state: HookState
    run: HookRun | None = None
    switched: asyncio.Event = field(default_factory=asyncio.Event)

    def saved(self, handled: int) -> None:
        """Ignored: runs count what is saved."""


class Deliverer:
    """Runs the hooks of one application until it is stopped.

    `sources` are the topics that the application reads: their records at the time when a hook
    is first enabled are older than the hook, even if a rebuild derives records from them later.
    """

    def __init__(
        self,
        app: str,
        hooks: Sequence[Hook],
        connection: Connection,
        *,
        sources: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.app = app
        self._hooks = hooks
        self._sources = sources
        self._connection = connection
        self._environment = environment
        self._clock = clock or SystemClock()
        self._random = random or Random()  # noqa: S311 - jitter, no secret
        self._on_message = on_message
        self._records = StateRecords()
        self._managed: dict[str, _ManagedHook] = {}

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], None] = lambda: None) -> None:
        """Delivers until `stop` is set; raises FencedError when another deliverer takes over."""
        await asyncio.to_thread(create_hook_topics, self._connection, self.app)
        self._state_writer = StateWriter(self._connection, self.app, on_message=self._on_message)
        self._topics = TopicLookup(self._connection)
        try:
            # Before the state is read: from here on nobody else changes it.
            await asyncio.to_thread(self._state_writer.open)
            self._records, following = await asyncio.to_thread(
                read_state, self._connection, state_topic(self.app)
            )
            await self._run(stop, following, on_ready)
        except ExceptionGroup as group:
            raise _first(group) from group
        finally:
            await asyncio.to_thread(self._state_writer.close)

    async def _run(self, stop: asyncio.Event, following: int, on_ready: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._state_writer.run())
            await self._take_over()
            switches = tasks.create_task(self._follow_switches(following))
            managing = [tasks.create_task(self._manage(each, stop)) for each in self._managed.values()]
            on_ready()
            await stop.wait()
            for each in self._managed.values():
                each.switched.set()
                if each.run is not None:
                    each.run.stop()
            await asyncio.wait(managing, timeout=_STOP_TIMEOUT_S) if managing else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._state_writer.wait_saved()
            for task in (writing, switches, *managing):
                task.cancel()

    # --- starting -----------------------------------------------------------------------------

    async def _take_over(self) -> None:
        """Loads the state of every hook; that of a new one is on the log before it sends anything."""
        for hook in self._hooks:
            state = self._records.states.get(hook.name)
            if state is None or state.topic != hook.topic or state.kind != hook.kind:
                state = await asyncio.to_thread(self._first_state, hook)
            state.app, state.shown, state.problem = self.app, hook.target.shown, None
            managed = self._managed[hook.name] = _ManagedHook(hook, state)
            self._state_writer.changed(managed)
        await self._state_writer.wait_saved()

    def _first_state(self, hook: Hook) -> HookState:
        """The state of a new hook; reads the ends of its topic before those of the source topics."""
        state = HookState.new(self.app, hook, self._clock.now_ms())
        topics = self._topics.topics([hook.topic])
        if hook.topic in topics and hook.start == "earliest":
            state.positions = self._topics.starts(hook.topic, topics[hook.topic].ends)
        elif hook.topic in topics:
            state.positions = dict(topics[hook.topic].ends)
        if hook.start != "earliest":
            sources = self._topics.topics(name for name in self._sources if name != hook.topic)
            for name, each in sources.items():
                for partition, end in each.ends.items():
                    state.marks.begin((name, partition), end)
            topics |= sources
        note_identities(state, topics)
        return state

    # --- one hook -----------------------------------------------------------------------------

    async def _manage(self, managed: _ManagedHook, stop: asyncio.Event) -> None:
        """Runs a hook whenever it is on, until the deliverer stops."""
        while not stop.is_set():
            managed.switched.clear()
            if not self._records.is_enabled(managed.hook.name):
                await managed.switched.wait()
                continue
            problem = await self._work(managed)
            if problem is not None and not stop.is_set():
                self._say(managed, problem)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN_S):
                        await managed.switched.wait()

    async def _work(self, managed: _ManagedHook) -> str | None:
        """One run of a hook; returns why it cannot deliver, if so."""
        hook, state, problem = managed.hook, managed.state, None
        try:
            sender = make_sender(hook, self._environment)
        except ConfigError as error:
            return str(error)
        try:
            topics = await asyncio.to_thread(self._topics.topics, {hook.topic, *state.topic_ids})
            if hook.topic not in topics:
                return f"topic {hook.topic!r} does not exist yet"
            self._note_topic(state, topics)
            self._say(managed, None)
            managed.run = self._new_run(hook, state, sender, topics)
            if self._records.is_enabled(hook.name):
                await managed.run.run()
        except* HeadraceError as group:
            problem = str(_first(group))
        finally:
            managed.run = None
            sender.close()
        return problem

    def _new_run(
        self, hook: Hook, state: HookState, sender: HookSender, topics: dict[str, FollowedTopic]
    ) -> HookRun:
        open_reader = partial(
            HookReader,
            self._connection,
            hook.topic,
            group=hook_group(self.app, hook.name),
        )
        return HookRun(
            hook,
            state,
            sender,
            topic_lookup=self._topics,
            topics=topics,
            open_reader=open_reader,
            state_writer=self._state_writer,
            clock=self._clock,
            random=self._random,
            turn_off=partial(self._turn_off, hook),
        )

    def _turn_off(self, hook: Hook, reason: str) -> None:
        """Turns a hook off, until it is turned on again."""
        switch = HookSwitch(enabled=False, reason=reason, at_ms=self._clock.now_ms())
        self._records.switches[hook.name] = switch
        self._state_writer.turn(hook.name, switch)
        self._on_message(f"hook {hook.name}: turned off: {reason}")

    def _note_topic(self, state: HookState, topics: dict[str, FollowedTopic]) -> None:
        """A followed topic that was recreated is read from its start: all of it is newer than the hook."""
        known = state.topic_ids.get(state.topic, "")
        if known and known != topics[state.topic].id:
            self._on_message(
                f"hook {state.hook}: topic {state.topic!r} was recreated and is read from its start"
            )
            state.positions = {}
        note_identities(state, topics)

    def _say(self, managed: _ManagedHook, problem: str | None) -> None:
        if problem == managed.state.problem:
            return
        self._on_message(f"hook {managed.hook.name}: {problem or 'delivering'}")
        managed.state.problem = problem
        self._state_writer.changed(managed)

    # --- switches -----------------------------------------------------------------------------

    async def _follow_switches(self, following: int) -> None:
        """Turns hooks on and off as the state topic says."""
        open_reader = partial(
            HookReader,
            self._connection,
            state_topic(self.app),
            {0: following},
            group=f"{state_topic(self.app)}.reader",
        )
        reader = await asyncio.to_thread(open_reader)
        try:
            while True:
                for item in await asyncio.to_thread(reader.read, _POLL_S):
                    if isinstance(item, HookRecord) and (item.key or b"").endswith(b"/switch"):
                        self._switch(item)
        finally:
            await asyncio.to_thread(reader.close)

    def _switch(self, record: HookRecord) -> None:
        try:
            apply_record(self._records, record.key, record.value)
        except CorruptionError as error:
            self._on_message(str(error))
            return
        name = (record.key or b"").decode(errors="replace").removesuffix("/switch")
        managed, enabled = self._managed.get(name), self._records.is_enabled(name)
        if managed is None:
            return
        self._on_message(f"hook {name}: turned {'on' if enabled else 'off'}")
        managed.switched.set()
        if not enabled and managed.run is not None:
            managed.run.stop()


def _first(group: BaseException) -> BaseException:
    """The first exception of nested groups."""
    return _first(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group


# --- as a process ---------------------------------------------------------------------------------


def run_deliverer(
    deliverer: Deliverer, *, on_ready: Callable[[], None] = lambda: None, until_stdin_closes: bool = False
) -> None:
    """Delivers until SIGTERM or SIGINT, or the end of input; raises what the deliverer raises."""
    with asyncio.Runner() as runner:
        runner.run(_run(deliverer, on_ready, until_stdin_closes))


async def _run(deliverer: Deliverer, on_ready: Callable[[], None], until_stdin_closes: bool) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="headrace-deliver"))
    stop_on_signals(stop.set, until_stdin_closes=until_stdin_closes)
    await deliverer.run(stop, on_ready)
