"""What administrators ask for: topics, configurations, users and permissions, quotas, groups."""
