"""A day in the book `b-1`: `python send.py`, while the ledger runs."""

from app import CaptureHold, Leg, OpenAccount, PlaceHold, Post, Reverse, app

DAY = (
    OpenAccount("cash", may_go_negative=True),
    OpenAccount("alice"),
    OpenAccount("shop"),
    Post("p-1", (Leg("cash", -50_000), Leg("alice", 50_000)), "deposit"),
    PlaceHold("h-1", "alice", 30_000),
    Post("p-2", (Leg("alice", -30_000), Leg("shop", 30_000)), "more than she has left"),
    CaptureHold("h-1", to="shop"),
    Post("p-3", (Leg("alice", -1_000), Leg("shop", 2_000)), "does not add up"),
    Reverse("h-1", "r-1"),
)

for number, command in enumerate(DAY):
    answer = app.entities.book("b-1").send_and_wait(command, by="teller", command_id=f"day-1-{number}")
    print(f"{type(command).__name__}: {answer.outcome} {answer.rule or answer.version}")  # noqa: T201
app.entities.close()
