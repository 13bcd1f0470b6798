"""Sends commands to the entities of an application, and waits for their answers; event loop only."""

from headrace.client import Connection
from headrace.console.workers import Workers
from headrace.sourcing import Answer, Command, CommandSender

__all__ = ["CommandWriter"]


class CommandWriter:
    """One sender for each application; made when its first command comes."""

    def __init__(self, connection: Connection, workers: Workers) -> None:
        self._connection = connection
        self._workers = workers
        self._senders: dict[str, CommandSender] = {}

    async def send(self, app: str, entity_type: str, command: Command, timeout_s: float) -> Answer:
        """The answer to a command; raises RetriableError if there is none in time."""
        sender = self._senders.get(app)
        if sender is None:
            sender = self._senders[app] = CommandSender(self._connection, app)
        await self._workers.run(sender.follow, entity_type)
        return await sender.ask(entity_type, command, timeout_s)

    def close(self) -> None:
        """Ends the threads of the senders."""
        for each in self._senders.values():
            each.close()
        self._senders.clear()
