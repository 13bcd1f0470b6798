"""Sends commands to accounts and prints the answers: change_accounts.py BOOTSTRAP FROM TO."""

import json
import sys

from accounts import Change, app

bootstrap, first, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
app.entities.connect(bootstrap)
answers = []
for number in range(first, end):
    account = app.entities.account(f"a-{number % 3}")
    answer = account.send_and_wait(Change(number - 20), by="ann", command_id=f"command {number}")
    answers.append([answer.outcome, answer.version, answer.repeated])
app.entities.close()
print(json.dumps(answers))
