"""All hooks of an application: takes their state over, keeps each at work, turns them on and off.

One deliverer is at work for an application; a second one takes over, and the first ends
(`headrace.direct.saving`). A hook that cannot work (its topic is missing, a secret is not
there) says so in its state and waits, while the others go on.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from headrace.client import Connection
from headrace.clock import Clock, SystemClock
from headrace.direct.asking import LogQuestions, TopicFacts
from headrace.direct.following import HookRun, note_identities
from headrace.direct.hook import Email, Hook, dead_topic, group_of, state_topic
from headrace.direct.mail import EmailSender
from headrace.direct.positions import Record
from headrace.direct.reading import TopicReader, read_state
from headrace.direct.saving import LARGEST_RECORD_BYTES, Saver
from headrace.direct.sending import Sender
from headrace.direct.state import HookState, Kept, Switch, read_kept
from headrace.direct.webhook import WebhookSender
from headrace.errors import ConfigError, CorruptionError, HeadraceError
from headrace.views import TopicSettings
from headrace.views.topics import create_topics

__all__ = ["Deliverer", "create_hook_topics", "make_sender"]

_LOOK_AGAIN_S = 1.0
_POLL_S = 0.25
_STOP_TIMEOUT_S = 5.0
_SIZE = {"max.message.bytes": str(LARGEST_RECORD_BYTES)}


def create_hook_topics(connection: Connection, app: str) -> None:
    """Makes the state topic and the dead-letter topic of an application's hooks, where they are missing."""
    wanted = {
        state_topic(app): TopicSettings(partitions=1, configs={"cleanup.policy": "compact", **_SIZE}),
        dead_topic(app): TopicSettings(partitions=1, configs=_SIZE),
    }
    create_topics(connection, wanted)


def make_sender(hook: Hook, environment: Mapping[str, str] | None = None) -> Sender:
    """What sends to the hook's target; raises ConfigError if a secret is not there."""
    if isinstance(hook.target, Email):
        return EmailSender(hook.target, environment=environment)
    return WebhookSender(hook.target, environment=environment)


@dataclass(slots=True)
class _Tended:
    """A hook under care: its state, and the run that works on it now."""

    hook: Hook
    state: HookState
    run: HookRun | None = None
    switched: asyncio.Event = field(default_factory=asyncio.Event)

    def saved(self, handled: int) -> None:
        """Counts nothing: runs do."""


class Deliverer:
    """Runs the hooks of one application until told to stop.

    `sources` are the topics that the application reads: what stands there when a hook is
    enabled for the first time is older than it, also when a rebuild writes it later.
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
        self._kept = Kept()
        self._tended: dict[str, _Tended] = {}

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], None] = lambda: None) -> None:
        """Delivers until `stop` is set; raises FencedError when another deliverer took over."""
        await asyncio.to_thread(create_hook_topics, self._connection, self.app)
        self._saver = Saver(self._connection, self.app, on_message=self._on_message)
        self._questions = LogQuestions(self._connection)
        try:
            await asyncio.to_thread(self._saver.open)  # before the state is read: nobody changes it now
            self._kept, following = await asyncio.to_thread(
                read_state, self._connection, state_topic(self.app)
            )
            await self._run(stop, following, on_ready)
        except ExceptionGroup as group:
            raise _first(group) from group
        finally:
            await asyncio.to_thread(self._saver.close)

    async def _run(self, stop: asyncio.Event, following: int, on_ready: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            saving = tasks.create_task(self._saver.run())
            await self._take_over()
            switches = tasks.create_task(self._follow_switches(following))
            tending = [tasks.create_task(self._tend(each, stop)) for each in self._tended.values()]
            on_ready()
            await stop.wait()
            for each in self._tended.values():
                each.switched.set()
                if each.run is not None:
                    each.run.stop()
            await asyncio.wait(tending, timeout=_STOP_TIMEOUT_S) if tending else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._saver.wait_saved()
            for task in (saving, switches, *tending):
                task.cancel()

    # --- beginning ----------------------------------------------------------------------------

    async def _take_over(self) -> None:
        """The state of every hook; that of a new one is on the log before it sends anything."""
        for hook in self._hooks:
            state = self._kept.states.get(hook.name)
            if state is None or state.topic != hook.topic or state.kind != hook.kind:
                state = await asyncio.to_thread(self._first_state, hook)
            state.app, state.shown, state.problem = self.app, hook.target.shown, None
            tended = self._tended[hook.name] = _Tended(hook, state)
            self._saver.changed(tended)
        await self._saver.wait_saved()

    def _first_state(self, hook: Hook) -> HookState:
        """Of a hook that begins now; its topic's ends first, those of the sources behind it after them."""
        state = HookState.new(self.app, hook, self._clock.now_ms())
        facts = self._questions.topics([hook.topic])
        if hook.topic in facts and hook.start == "earliest":
            state.positions = self._questions.starts(hook.topic, facts[hook.topic].ends)
        elif hook.topic in facts:
            state.positions = dict(facts[hook.topic].ends)
        if hook.start != "earliest":
            sources = self._questions.topics(name for name in self._sources if name != hook.topic)
            for name, each in sources.items():
                for partition, end in each.ends.items():
                    state.marks.begin((name, partition), end)
            facts |= sources
        note_identities(state, facts)
        return state

    # --- one hook -----------------------------------------------------------------------------

    async def _tend(self, tended: _Tended, stop: asyncio.Event) -> None:
        """Keeps a hook at work while it is on, for ever."""
        while not stop.is_set():
            tended.switched.clear()
            if not self._kept.is_enabled(tended.hook.name):
                await tended.switched.wait()
                continue
            problem = await self._work(tended)
            if problem is not None and not stop.is_set():
                self._say(tended, problem)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN_S):
                        await tended.switched.wait()

    async def _work(self, tended: _Tended) -> str | None:
        """One run of a hook; why it cannot work, if it cannot."""
        hook, state, problem = tended.hook, tended.state, None
        try:
            sender = make_sender(hook, self._environment)
        except ConfigError as error:
            return str(error)
        try:
            facts = await asyncio.to_thread(self._questions.topics, {hook.topic, *state.topic_ids})
            if hook.topic not in facts:
                return f"topic {hook.topic!r} does not exist yet"
            self._note_topic(state, facts)
            self._say(tended, None)
            tended.run = self._new_run(hook, state, sender, facts)
            if self._kept.is_enabled(hook.name):
                await tended.run.run()
        except* HeadraceError as group:
            problem = str(_first(group))
        finally:
            tended.run = None
            sender.close()
        return problem

    def _new_run(self, hook: Hook, state: HookState, sender: Sender, facts: dict[str, TopicFacts]) -> HookRun:
        open_reader = partial(
            TopicReader,
            self._connection,
            hook.topic,
            group=group_of(self.app, hook.name),
        )
        return HookRun(
            hook,
            state,
            sender,
            questions=self._questions,
            facts=facts,
            open_reader=open_reader,
            saver=self._saver,
            clock=self._clock,
            random=self._random,
            turn_off=partial(self._turn_off, hook),
        )

    def _turn_off(self, hook: Hook, reason: str) -> None:
        """For good, or until somebody turns it on again."""
        switch = Switch(enabled=False, reason=reason, at_ms=self._clock.now_ms())
        self._kept.switches[hook.name] = switch
        self._saver.turn(hook.name, switch)
        self._on_message(f"hook {hook.name}: turned off, for {reason}")

    def _note_topic(self, state: HookState, facts: dict[str, TopicFacts]) -> None:
        """A followed topic that was made anew is read from its start: all of it is newer than the hook."""
        known = state.topic_ids.get(state.topic, "")
        if known and known != facts[state.topic].id:
            self._on_message(
                f"hook {state.hook}: topic {state.topic!r} was made anew, and is read from its start"
            )
            state.positions = {}
        note_identities(state, facts)

    def _say(self, tended: _Tended, problem: str | None) -> None:
        if problem == tended.state.problem:
            return
        self._on_message(f"hook {tended.hook.name}: {problem or 'at work'}")
        tended.state.problem = problem
        self._saver.changed(tended)

    # --- switches -----------------------------------------------------------------------------

    async def _follow_switches(self, following: int) -> None:
        """Turns hooks on and off as the state topic says, whoever wrote it."""
        open_reader = partial(
            TopicReader,
            self._connection,
            state_topic(self.app),
            {0: following},
            group=f"{state_topic(self.app)}.reader",
        )
        reader = await asyncio.to_thread(open_reader)
        try:
            while True:
                for item in await asyncio.to_thread(reader.read, _POLL_S):
                    if isinstance(item, Record) and (item.key or b"").endswith(b"/switch"):
                        self._switch(item)
        finally:
            await asyncio.to_thread(reader.close)

    def _switch(self, record: Record) -> None:
        try:
            read_kept(self._kept, record.key, record.value)
        except CorruptionError as error:
            self._on_message(str(error))
            return
        name = (record.key or b"").decode(errors="replace").removesuffix("/switch")
        tended, enabled = self._tended.get(name), self._kept.is_enabled(name)
        if tended is None:
            return
        self._on_message(f"hook {name}: turned {'on' if enabled else 'off'}")
        tended.switched.set()
        if not enabled and tended.run is not None:
            tended.run.stop()


def _first(group: BaseException) -> BaseException:
    """The first failure of a group of groups."""
    return _first(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group
