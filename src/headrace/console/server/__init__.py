"""The console's process: its sockets and connections, the ASGI application, the guard and the audit log."""
