"""How results look in a terminal: tables, records, times. Pure, but for the printer."""
