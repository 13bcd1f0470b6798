"""Windows: tumbling, hopping, sliding and session, in event time, with corrections.

`definition` is what a result is, computed in batch; the states keep it incrementally.
Arrow only: no Spark, no I/O.
"""
