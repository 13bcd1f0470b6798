"""What is imported late is imported whole, however many threads need it first at once."""

import subprocess
import sys

from headrace.records import Record, encode_batch

PROGRAM = """
import sys, threading
from headrace.records import Codec, Record, decode_batch, encode_batch

sys.setswitchinterval(1e-5)  # without it they hardly ever meet
plain = bytes.fromhex(sys.argv[1])
begin = threading.Barrier(8)
failures = []

def work(number):
    begin.wait()
    try:
        if number % 2:
            decode_batch(plain)
        else:
            encode_batch([Record(0, 1, b"k", b"v")], codec=Codec.GZIP)
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(failures)
"""


def test_threads_that_need_the_reader_and_the_codecs_first_do_not_trip_over_each_other():
    plain = encode_batch([Record(0, 1, b"k", b"v")]).hex()
    for _ in range(5):
        command = [sys.executable, "-c", PROGRAM, plain]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout == "[]\n", done.stderr
