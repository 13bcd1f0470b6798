"""Personal data: fields that are sealed with a key of their subject, and subjects that are forgotten.

A sealed value is a text that only the key of its subject opens (`cipher.py`). Keys are kept apart from
the log, wrapped by a master key, in a small database (`keys.py`); destroying the key of a subject makes
everything that was sealed with it unreadable, wherever copies of it are (`forget.py`).

Promises: a personal value is never written in the clear; a destroyed key is in no file of the store; a
subject that is forgotten stays forgotten, even after a crash between any two steps. May import the ground
floor only.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.personal.cipher import is_sealed as is_sealed
    from headrace.personal.forget import Clear as Clear
    from headrace.personal.forget import Cleared as Cleared
    from headrace.personal.forget import Forgetting as Forgetting
    from headrace.personal.forget import forget as forget
    from headrace.personal.forget import pending as pending
    from headrace.personal.forget import resume as resume
    from headrace.personal.keys import SHARED_STATES as SHARED_STATES
    from headrace.personal.keys import KeyStore as KeyStore
    from headrace.personal.marks import Personal as Personal
    from headrace.personal.marks import mentions_personal as mentions_personal
    from headrace.personal.marks import personal_fields as personal_fields
    from headrace.personal.open import KeyPlace as KeyPlace
    from headrace.personal.open import key_place as key_place
    from headrace.personal.open import open_keys as open_keys
    from headrace.personal.receipts import Receipt as Receipt
    from headrace.personal.receipts import check_receipt as check_receipt
    from headrace.personal.receipts import public_key as public_key

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "cipher": "is_sealed",
        "forget": "Clear Cleared Forgetting forget pending resume",
        "keys": "SHARED_STATES KeyStore",
        "marks": "Personal mentions_personal personal_fields",
        "open": "KeyPlace key_place open_keys",
        "receipts": "Receipt check_receipt public_key",
    },
)
