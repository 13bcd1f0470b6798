"""What the API reads: questions to the log, to view stores and to an application's files.

Blocking, for the console's threads.
"""
