"""One partition: appended, synced, recovered, and kept within its retention."""
