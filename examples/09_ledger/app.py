"""A ledger: double-entry accounts with holds and reversals, and three views of the same events."""

from dataclasses import dataclass, field, replace

from headrace import App, Rejected, agg, tumbling

app = App("ledger")


@dataclass(frozen=True)
class Leg:
    """One side of a posting: so many cents into an account, or out of it."""

    account: str
    amount: int


# Commands: what somebody wants.
@dataclass(frozen=True)
class OpenAccount:
    account: str
    may_go_negative: bool = False


@dataclass(frozen=True)
class Post:
    posting: str
    legs: tuple[Leg, ...]
    text: str = ""


@dataclass(frozen=True)
class Reverse:
    posting: str
    reversal: str


@dataclass(frozen=True)
class PlaceHold:
    hold: str
    account: str
    amount: int


@dataclass(frozen=True)
class CaptureHold:
    hold: str
    to: str


@dataclass(frozen=True)
class ReleaseHold:
    hold: str


# Events: what has happened.
@dataclass(frozen=True)
class AccountOpened:
    account: str
    may_go_negative: bool


@dataclass(frozen=True)
class Moved:
    posting: str
    account: str
    amount: int
    text: str = ""


@dataclass(frozen=True)
class PostingReversed:
    posting: str
    reversal: str


@dataclass(frozen=True)
class HoldPlaced:
    hold: str
    account: str
    amount: int


@dataclass(frozen=True)
class HoldEnded:
    hold: str
    account: str
    amount: int


# State: what deciding needs to know.
@dataclass(frozen=True)
class Book:
    balances: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    may_go_negative: frozenset[str] = frozenset()
    holds: dict[str, Leg] = field(default_factory=dict)
    postings: dict[str, tuple[Leg, ...]] = field(default_factory=dict)
    reversed: frozenset[str] = frozenset()

    def available(self, account: str) -> int:
        return self.balances[account] - self.held.get(account, 0)


Commands = OpenAccount | Post | Reverse | PlaceHold | CaptureHold | ReleaseHold
Events = AccountOpened | Moved | PostingReversed | HoldPlaced | HoldEnded


def decide(command: Commands, book: Book) -> list[Events]:
    match command:
        case OpenAccount(account, may_go_negative):
            if account in book.balances:
                raise Rejected("account-exists", f"there is an account {account!r} already")
            return [AccountOpened(account, may_go_negative)]
        case Post(posting, legs, text):
            return posted(book, posting, legs, text)
        case Reverse(posting, reversal):
            if posting not in book.postings:
                raise Rejected("no-such-posting", f"there is no posting {posting!r}")
            if posting in book.reversed:
                raise Rejected("reversed-before", f"posting {posting!r} was reversed before")
            opposite = tuple(Leg(each.account, -each.amount) for each in book.postings[posting])
            moved = posted(book, reversal, opposite, f"reverses {posting}")
            return [*moved, PostingReversed(posting, reversal)]
        case PlaceHold(hold, account, amount):
            require_account(book, account)
            if hold in book.holds or amount <= 0 or book.available(account) < amount:
                raise Rejected("insufficient-funds", f"{account} has {book.available(account)} available")
            return [HoldPlaced(hold, account, amount)]
        case CaptureHold(hold, to):
            held = held_by(book, hold)
            legs = (Leg(held.account, -held.amount), Leg(to, held.amount))
            ended = HoldEnded(hold, held.account, held.amount)
            return [ended, *posted(evolve(book, ended), hold, legs, "captured")]
        case ReleaseHold(hold):
            held = held_by(book, hold)
            return [HoldEnded(hold, held.account, held.amount)]


def posted(book: Book, posting: str, legs: tuple[Leg, ...], text: str) -> list[Events]:
    """The movements of a posting, if it is balanced and no account goes where it may not."""
    if posting in book.postings:
        raise Rejected("posted-before", f"there is a posting {posting!r} already")
    if len(legs) < 2 or sum(each.amount for each in legs) != 0:
        raise Rejected("unbalanced", "the amounts of a posting add up to zero")
    for account in {leg.account for leg in legs}:
        require_account(book, account)
        change = sum(leg.amount for leg in legs if leg.account == account)
        short = change < 0 and book.available(account) + change < 0
        if short and account not in book.may_go_negative:
            raise Rejected("insufficient-funds", f"{account} has {book.available(account)} available")
    return [Moved(posting, leg.account, leg.amount, text) for leg in legs]


def require_account(book: Book, account: str) -> None:
    if account not in book.balances:
        raise Rejected("no-such-account", f"there is no account {account!r}")


def held_by(book: Book, hold: str) -> Leg:
    if hold not in book.holds:
        raise Rejected("no-such-hold", f"there is no hold {hold!r}")
    return book.holds[hold]


def evolve(book: Book, event: Events) -> Book:
    match event:
        case AccountOpened(account, may_go_negative):
            allowed = book.may_go_negative | {account} if may_go_negative else book.may_go_negative
            return replace(book, balances=book.balances | {account: 0}, may_go_negative=allowed)
        case Moved(posting, account, amount):
            legs = (*book.postings.get(posting, ()), Leg(account, amount))
            balances = book.balances | {account: book.balances[account] + amount}
            return replace(book, balances=balances, postings=book.postings | {posting: legs})
        case PostingReversed(posting):
            return replace(book, reversed=book.reversed | {posting})
        case HoldPlaced(hold, account, amount):
            held = book.held | {account: book.held.get(account, 0) + amount}
            return replace(book, held=held, holds=book.holds | {hold: Leg(account, amount)})
        case HoldEnded(hold, account, amount):
            held = book.held | {account: book.held[account] - amount}
            holds = {name: leg for name, leg in book.holds.items() if name != hold}
            return replace(book, held=held, holds=holds)


book = app.entity("book", decide=decide, evolve=evolve, initial=Book())


# Views of the same events: a stream like any other.
@app.view
def balances():
    """The balance of every account."""
    moved = book.events.where("type = 'Moved'").with_columns(account="data.account", amount="data.amount")
    return moved.group_by("entity", "account").agg(balance=agg.sum("amount"))


@app.view
def large_payments():
    """Payments of more than 1,000.00 an hour, by account."""
    large = book.events.where("type = 'Moved' and data.amount < -100000").with_columns(account="data.account")
    return large.window(tumbling("1 hour"), by=["entity", "account"]).agg(payments=agg.count())


@app.view(key=["entity", "version"])
def audit():
    """Who did what, when."""
    return book.events.select("entity", "version", "type", "at", "by", "command")
