"""Out of the log to people and other programs: webhooks and mail.

A *hook* follows a topic and sends every record to a URL or to mail addresses: at least
once, in order per partition, always under the same id, so that a receiver that remembers
ids takes each record once. What a hook has done is kept on the log itself; records that it
had to give up go to a dead-letter topic with the reason, and the others go on. A replay
sends nothing again.

`headrace deliver` runs the hooks of an application in a process of its own. May import
`views`, `client` and what is below them.
"""

__all__: list[str] = []
