"""What administrators ask for: topics, configurations, users and permissions, quotas, groups."""

from headrace.broker.apis.admin.access import AccessApis
from headrace.broker.apis.admin.client_quotas import QuotaApis
from headrace.broker.apis.admin.configs import ConfigApis
from headrace.broker.apis.admin.groups import GroupAdminApis
from headrace.broker.apis.admin.queues import QueueAdminApis
from headrace.broker.apis.admin.topics import TopicApis
from headrace.broker.apis.admin.transactions import TransactionAdminApis

__all__ = [
    "AccessApis",
    "ConfigApis",
    "GroupAdminApis",
    "QueueAdminApis",
    "QuotaApis",
    "TopicApis",
    "TransactionAdminApis",
]
