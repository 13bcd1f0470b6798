"""What goes to a terminal or a pipe: output, tables, payloads, times. Knows no command."""
