"""Aggregates: what is computed over the rows of a group, exactly and in any order of arrival.

Arrow and numpy only: no Spark, no I/O.
"""
