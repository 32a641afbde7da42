"""A kill is heard at the webhook, through the real Prometheus and Alertmanager."""

from __future__ import annotations

import pytest

from tests.monitoring import live


@pytest.mark.slow
@pytest.mark.skipif(bool(live.MISSING), reason=f"not here: {', '.join(live.MISSING)} (apt-get install)")
def test_a_kill_is_heard_at_the_webhook() -> None:
    told: list[str] = []
    alert = live.chain(told.append)
    assert alert["status"] == "firing"
    assert alert["labels"]["alertname"] == live.ALERT and alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["runbook_url"].endswith(f"/{live.ALERT}.md")
    assert len(told) == live.KILLS + 3
