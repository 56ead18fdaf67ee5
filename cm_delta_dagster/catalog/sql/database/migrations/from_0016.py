"""From revision 0016 to 0017: the tables of webhooks are dropped. Programs that read the feed deliver its events."""

import sqlalchemy as sa


def upgrade(connection: sa.Connection) -> None:
    """Subscriptions and stored failures are lost; the audit keeps who set and removed subscriptions."""
    for table in ("cm_delta_webhook_failures", "cm_delta_webhooks"):
        connection.exec_driver_sql(f"DROP TABLE {table}")
