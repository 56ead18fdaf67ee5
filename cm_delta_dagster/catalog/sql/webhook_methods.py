"""Methods of :class:`~cm_delta_dagster.catalog.sql.catalog.SqlCatalog` for subscriptions by webhook."""

from collections.abc import Callable

from cm_delta_dagster.catalog.durations import is_duration
from cm_delta_dagster.catalog.sql import webhooks
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.webhooks import Webhook, WebhookFailure
from cm_delta_dagster.errors import InvalidArgumentError


class WebhookMethods:
    """A base of the catalog. Each method opens the connection or transaction of one operation."""

    _database: CallerDatabase
    _now_ms: Callable[[], int]

    def put_webhook(self, webhook: Webhook) -> None:
        """Create or replace the subscription. Raises InvalidArgumentError."""
        checked, now_ms = webhooks.checked(webhook), self._now_ms()
        self._database.write(lambda connection: webhooks.put(connection, checked, now_ms=now_ms))

    def remove_webhook(self, name: str) -> None:
        """Delete the subscription. Raises WebhookNotFoundError."""
        now_ms = self._now_ms()
        self._database.write(lambda connection: webhooks.remove(connection, name, now_ms=now_ms))

    def webhooks(self) -> tuple[Webhook, ...]:
        """Every subscription, by name."""
        return self._database.read(webhooks.webhooks)

    def lease_webhook(self, name: str, *, owner: str, duration_ms: int) -> bool:
        """Lease the delivery of a subscription, or renew the lease."""
        if not is_duration(duration_ms, at_least=1):
            raise InvalidArgumentError(
                f"The lease of a webhook cannot last {duration_ms!r} ms: give a whole number of milliseconds, at most a "
                "hundred years."
            )
        now_ms = self._now_ms()
        until_ms = now_ms + duration_ms
        return self._database.write(
            lambda connection: webhooks.lease(connection, name, owner=owner, until_ms=until_ms, now_ms=now_ms)
        )

    def advance_webhook(self, name: str, *, owner: str, position: int, failure: WebhookFailure | None = None) -> bool:
        """Record what was delivered; False without the lease."""
        return self._database.write(
            lambda connection: webhooks.advance(connection, name, owner=owner, position=position, failure=failure)
        )

    def release_webhook(self, name: str, *, owner: str) -> None:
        """End the lease."""
        self._database.write(lambda connection: webhooks.release(connection, name, owner=owner))

    def webhook_failures(self, name: str) -> tuple[WebhookFailure, ...]:
        """The failures of a subscription, by position."""
        return self._database.read(lambda connection: webhooks.failures(connection, name))

    def forget_webhook_failure(self, name: str, position: int) -> None:
        """Delete a failure."""
        self._database.write(lambda connection: webhooks.forget_failure(connection, name, position))
