"""Firestore's indexes: those that the listing of runs needs, and no others. The emulator answers what production refuses."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dedup.record import RunRecord
from dedup.stores.firestore import LISTED_BY
from tests.template.terraform.deployments import Planned

NEWEST_FIRST = ("schedule_time", "DESCENDING")


def test_each_listing_has_its_index(planned: Planned) -> None:
    """Runs that are filtered by some fields, newest first, are found by an index of each of these fields with the time."""
    indexes = planned_values(planned, "google_firestore_index")
    composite = {tuple((field["field_path"], field["order"]) for field in index["fields"]) for index in indexes}

    assert composite == {((field, "ASCENDING"), NEWEST_FIRST) for listed_by in LISTED_BY for field in listed_by}
    assert [index["query_scope"] for index in indexes] == ["COLLECTION"] * len(composite)


def test_no_other_field_is_indexed(planned: Planned) -> None:
    """Of the fields alone, only the time is indexed, newest first; a field that nobody named is not."""
    indexed = {
        field["field"]: [(index["order"], index["query_scope"]) for index in field["index_config"][0]["indexes"]]
        for field in planned_values(planned, "google_firestore_field")
    }

    assert () in LISTED_BY  # all runs, newest first
    assert indexed == {"*": [], "expire_at": [], "schedule_time": [("DESCENDING", "COLLECTION")]}


def test_records_have_the_fields_that_are_named(planned: Planned) -> None:
    """What Terraform names of a record is a field of it, and the TTL policy is on expire_at alone."""
    named = {field["field"]: field["ttl_config"] for field in planned_values(planned, "google_firestore_field")}
    listed_by = {field for listing in LISTED_BY for field in listing}

    assert listed_by | named.keys() - {"*"} <= {field.name for field in fields(RunRecord)}
    assert [field for field, ttl in named.items() if ttl] == ["expire_at"]


def planned_values(planned: Planned, kind: str) -> list[dict[str, Any]]:
    """What is planned of one type of resource."""
    return [resource["values"] for resource in planned.resources("timeout_120", kind)]
