"""Alerts and metrics look for the lines that the function writes."""

from __future__ import annotations

import ast
import re

from tests.template import ROOT
from tests.template.terraform.deployments import Planned


def test_every_outcome_that_is_looked_for_is_written() -> None:
    """Each jsonPayload.outcome of a filter, a chart or a query is one that the handler answers with."""
    looked_for = re.findall(r'outcome=(?:\(?|one_of\()((?:\\"\w+\\"(?: OR |, )?)+)', filters())
    outcomes = {outcome for group in looked_for for outcome in re.findall(r"[a-z_]+", group)}

    assert len(outcomes) >= 9
    assert outcomes <= set(strings("handler.py"))


def test_every_message_that_is_looked_for_is_written() -> None:
    """Each jsonPayload.message of a filter begins a line that is logged."""
    looked_for = re.findall(r'jsonPayload\.message:\\"([^"\\]+)\\"', filters())

    assert len(looked_for) == 3
    for message in looked_for:
        assert any(written.startswith(message) for written in strings("handler.py", "lease.py"))


def test_every_field_that_is_looked_for_is_written() -> None:
    """Each jsonPayload field of a filter or of a metric is one that the line of a delivery has."""
    looked_for = set(re.findall(r"jsonPayload\.(\w+)", filters())) - {"message"}

    assert looked_for == {"outcome", "job_name", "attempt", "milliseconds"}
    assert looked_for <= set(strings("handler.py"))


def test_alerts_need_no_metric_to_be_there(planned: Planned) -> None:
    """A first apply can't fail on a metric that isn't there yet: no condition has a threshold or an absence."""
    kinds = {
        kind
        for resource in planned.resources("timeout_120", "google_monitoring_alert_policy")
        for condition in resource["values"]["conditions"]
        for kind, block in condition.items()
        if kind.startswith("condition_") and block
    }

    assert kinds == {"condition_matched_log", "condition_prometheus_query_language"}


def filters() -> str:
    """What is looked for, as it is written."""
    return "".join(ROOT.joinpath("terraform", name).read_text() for name in ("monitoring.tf", "dashboard.tf"))


def strings(*modules: str) -> list[str]:
    """All texts in modules of dedup."""
    return [
        node.value
        for module in modules
        for node in ast.walk(ast.parse(ROOT.joinpath("dedup", module).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
