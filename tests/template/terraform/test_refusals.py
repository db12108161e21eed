"""What a plan is refused for, and what the refusal says: all of it, so that nothing else refuses the same plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.template import ROOT
from tests.template.size import WHOLE
from tests.template.terraform.deployments import OTHER_STORES
from tests.template.terraform.workspace import OF_A_FORK, Terraform

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")]

HOURLY = {"schedule": "0 * * * *"}


def test_values_that_google_would_refuse(terraform: Terraform) -> None:
    """A value that Google would take wrongly, or refuse only when it is deployed, is refused by its variable."""
    refused = terraform.refusals(schedule="every 5 minutes", name="My_Job", concurrency=10, cpu=0.5, timeout_seconds=1801)

    assert refused == {
        "variable.schedule": one_line(
            """schedule "every 5 minutes" is in groc format (App Engine's cron syntax). Its schedule time is not the same in
            each attempt, so a retry would pass for a new run. Say it in unix-cron: "*/5 * * * *" for every 5 minutes, "0
            9 * * 1-5" for 9:00 on weekdays."""
        ),
        "variable.name": one_line(
            """name is kebab-case, such as nightly-export: lower-case letters, digits and single hyphens, a letter first, at
            most 20 characters (it becomes a part of service accounts' ids, which end at 30)."""
        ),
        "variable.concurrency": one_line(
            """concurrency 10 needs a whole CPU, and cpu is 0.5: Cloud Run refuses it. Set cpu to 1 or more, or concurrency
            to 1."""
        ),
        "variable.timeout_seconds": one_line(
            """timeout_seconds is 1 to 1800: Cloud Scheduler waits for an answer for at most 30 minutes. Hand longer work
            over to something else (run.hand_over), and let it finish the run."""
        ),
    }


def test_values_that_contradict_each_other(terraform: Terraform) -> None:
    """Each of two values that can't both be is told once, by the variable that is to be changed."""
    refused = terraform.refusals(
        schedule="30 2 * *",
        name="twenty-one-characters",
        create_database=False,
        environment={"API_KEY": "in plain text"},
        secret_environment_variables={"API_KEY": {"secret": "api-key"}},
        min_instances=11,
    )

    assert {variable: len(messages) for variable, messages in refused.items()} == {
        "variable.schedule": 1,
        "variable.name": 1,
        "variable.database_id": 1,
        "variable.environment": 1,
        "variable.max_instances": 1,
    }
    assert refused["variable.schedule"][0].startswith('schedule "30 2 * *" is not unix-cron: five fields')
    assert refused["variable.environment"] == ["In environment and in secret_environment_variables at once: API_KEY."]


@pytest.mark.parametrize(
    ("store", "file"),
    [("spanner", "dedup/stores/requirements-spanner.txt"), ("memorystore", "dedup/stores/requirements-redis.txt")],
    ids=["spanner", "redis"],
)
def test_a_store_whose_library_isnt_uploaded(store: str, file: str, terraform: Terraform, tmp_path: Path) -> None:
    """A store is refused until the uploaded requirements.txt lists its library, by that line, or by the pinned one itself."""
    for name, text in OF_A_FORK.items():
        (tmp_path / name).write_text(text)
    (pinned,) = (line for line in ROOT.joinpath(file).read_text().splitlines() if not line.startswith("#"))
    variables = {"store": store, "source_dir": str(tmp_path)} | ({"network": "default"} if store == "memorystore" else {})

    def refused_with(*lines: str) -> dict[str, list[str]]:
        (tmp_path / "requirements.txt").write_text("\n".join(["functions-framework==3.10.2", *lines, ""]))
        return terraform.refusals(**variables)

    refusal = one_line(
        f"""store = "{store}" needs a package that {tmp_path / "requirements.txt"} doesn't list. Add this line to it:
        -r {file}"""
    )
    assert refused_with("flask==3.1.3", f"# -r {file}", "-r requirements-more.txt") == {"variable.store": refusal}
    assert refused_with(f"-r {file}") == {}
    assert refused_with(f"--requirement=./{file}  # the runs") == {}
    assert refused_with(pinned) == {}


def test_what_a_store_needs_and_what_is_anothers(terraform: Terraform) -> None:
    """A store lacks nothing in the plan, and has nothing that it would pass over; each is told by the variable to change."""
    lacking = terraform.refusals(store="spanner", create_database=False, subnetwork="functions", **OTHER_STORES)
    mixed = terraform.refusals(
        store="memorystore",
        database_location="nam5",
        spanner_instance="main",
        memorystore={"host": "10.0.0.3"},
        **OTHER_STORES,
    )
    unknown = terraform.refusals(store="redis")

    assert lacking == {
        "variable.database_id": ["create_database = false needs database_id, the id of the database to use."],
        "variable.spanner_instance": one_line(
            "create_database = false needs spanner_instance, the id of the instance that the database is on."
        ),
        "variable.subnetwork": ["subnetwork needs network, the VPC network that it is a part of."],
    }
    assert {variable: len(messages) for variable, messages in mixed.items()} == {
        "variable.database_location": 1,
        "variable.spanner_instance": 1,
        "variable.memorystore": 1,
        "variable.network": 1,
    }
    assert unknown == {"variable.store": ["store is firestore, spanner or memorystore."]}


@pytest.mark.parametrize(
    ("ignored", "told"),
    [
        ("main.py\n/*\n", {1: "the first rule must be /*, which leaves out all that no line lets through"}),
        (
            "/*\n!/dedup/\n# a comment\n#!include:.gitignore\n!reports/\n!/a/b\n!/*.py\n",
            {
                4: "write the lines of that file here",
                5: "let through a name at the top, as !/NAME or !/NAME/; parts of it are left out by lines such as /NAME/PART/",
                6: "let through a name at the top, as !/NAME or !/NAME/; parts of it are left out by lines such as /NAME/PART/",
                7: "let through a name at the top, as !/NAME or !/NAME/; parts of it are left out by lines such as /NAME/PART/",
            },
        ),
        (
            "/*\n\\!x\n!/[a]\na\tb\n{a,b}\n!/dedup/ \n tmp\n! /a\n!/a /\n",
            {
                **dict.fromkeys(
                    (2, 3, 4, 5),
                    "write it without backslashes, brackets, braces and tabs; * and ? are taken where something is left out",
                ),
                **dict.fromkeys((6, 7, 8, 9), "leave out the blanks at its start, and beside its last slash"),
            },
        ),
        (
            "/*\n./a\n!/..\n**/a\na/**\n*\n*/a\na//b\n/\n",
            {
                **dict.fromkeys((2, 3), "write it without . and .. as names"),
                **dict.fromkeys((4, 5), "write it without **: a line that doesn't start with a slash holds at any depth"),
                **dict.fromkeys((6, 7, 8, 9), "write it as NAME, or as /PATH from the top"),
            },
        ),
    ],
    ids=["another first rule", "what is let through", "letters", "what is left out"],
)
def test_lines_that_gcloud_reads_otherwise(ignored: str, told: Mapping[int, str], terraform: Terraform, tmp_path: Path) -> None:
    """What Terraform can't read in .gcloudignore as gcloud does is refused: each such line, with what to write."""
    for name, text in (OF_A_FORK | {".gcloudignore": ignored}).items():
        (tmp_path / name).write_text(text)

    refused = terraform.refusals(source_dir=str(tmp_path))

    written = dict(enumerate(ignored.split("\n"), 1))
    lines = " ".join(f'Line {number}, "{written[number]}": {reason}.' for number, reason in told.items())
    assert refused == {"data.archive_file": [f"Terraform can't read {tmp_path}/.gcloudignore as gcloud does. {lines}"]}


@pytest.mark.parametrize(
    ("ignored", "told"),
    [
        (b"", "It has no rule: the first must be /*, which leaves out all that no line lets through."),
        (
            "/*\n!/u\u0308ber/\n".encode(),
            """It isn't there, or isn't text in UTF-8, or has letters that are written as two, a letter and its accent: type
            such names anew.""",
        ),
    ],
    ids=["empty", "decomposed letters"],
)
def test_a_gcloudignore_that_cant_be_read(ignored: bytes, told: str, terraform: Terraform, tmp_path: Path) -> None:
    """A .gcloudignore without a rule, or whose letters Terraform would change, is refused with the reason."""
    for name, text in OF_A_FORK.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".gcloudignore").write_bytes(ignored)

    refused = terraform.refusals(source_dir=str(tmp_path))

    assert refused == {
        "data.archive_file": [f"Terraform can't read {tmp_path}/.gcloudignore as gcloud does. {one_line(told)[0]}"]
    }


def test_a_folder_without_dedup_that_isnt_text(terraform: Terraform, tmp_path: Path) -> None:
    """A folder that would get this repository's dedup/ is refused for each file that Terraform would change."""
    for name, text in OF_A_FORK.items():
        (tmp_path / name).write_text(text + ("!/data/\n" if name == ".gcloudignore" else ""))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text.txt").write_text("\u00e9\n")
    (tmp_path / "data" / "accents.txt").write_text("e\u0301\n")
    (tmp_path / "data" / "logo.png").write_bytes(b"\x89PNG")

    refused = terraform.refusals(source_dir=str(tmp_path))

    assert refused == {
        "data.archive_file": one_line(
            f"""A folder without dedup/ is deployed as text alone, and these are no text in UTF-8 that stays as it is:
            {tmp_path}/data/accents.txt, {tmp_path}/data/logo.png. Put a copy of dedup/, or a link to it, into {tmp_path}: then
            all of it is deployed as it is."""
        )
    }


def test_more_jobs(terraform: Terraform) -> None:
    """More jobs are held to the same rules as the first, and a schedule that can't be taken is named with its job."""
    refused = terraform.refusals(
        jobs={
            "as-it-should-be": HOURLY,
            "Upper": HOURLY,
            "scheduled-job": HOURLY,
            "groc": {"schedule": "every day 9:00"},
            "four-fields": {"schedule": "0 * * *"},
            "six-retries": HOURLY | {"retry_count": 6},
        }
    )

    assert [re.split(r"[.,] ", message)[0] for message in refused.pop("variable.jobs")] == [
        "The ids of jobs are kebab-case",
        '"scheduled-job" is the job that the other variables describe; jobs holds more of them',
        'A schedule of jobs is in groc format: groc: "every day 9:00"',
        'A schedule of jobs is not unix-cron: four-fields: "0 * * *"',
        "A retry_count of jobs is not 0 to 5: Cloud Scheduler takes no more",
    ]
    assert refused == {}


def test_timings_by_which_a_run_could_be_lost(terraform: Terraform) -> None:
    """Each is refused with what would go wrong and what to set, and for nothing else; those just beside it are taken."""
    refused = terraform.refusals(
        lease_seconds=300,  # with a timeout of 120 s, retries go on for more than 430 s
        retention_seconds=1_000_000,
        jobs={
            "deadline-1801": HOURLY | {"attempt_deadline_seconds": 1801},
            "deadline-1800": HOURLY | {"attempt_deadline_seconds": 1800},
            "half-a-second": HOURLY | {"attempt_deadline_seconds": 120.5},
            "deadline-119": HOURLY | {"attempt_deadline_seconds": 119},
            "deadline-120": HOURLY | {"attempt_deadline_seconds": 120},
            "no-retries": HOURLY | {"retry_count": 0},
            "five-of-5-s": HOURLY | {"min_backoff_seconds": 5},
            "ends-at-430": HOURLY | {"min_backoff_seconds": 86, "max_backoff_seconds": 86},
            "ends-at-435": HOURLY | {"min_backoff_seconds": 87, "max_backoff_seconds": 87},
            "no-doubling": HOURLY | {"max_doublings": 0},
            "one-doubling": HOURLY | {"max_doublings": 1},
            "half-a-doubling": HOURLY | {"max_doublings": 1.5},
            "longest-below-first": HOURLY | {"min_backoff_seconds": 100, "max_backoff_seconds": 99},
            "negative-limit": HOURLY | {"max_retry_duration_seconds": -1},
        },
    )

    assert {job: len(messages) for job, messages in refused.items()} == {
        "deadline-1801": 1,
        "half-a-second": 1,
        "deadline-119": 1,
        "no-retries": 1,
        "five-of-5-s": 1,
        "ends-at-430": 1,
        "no-doubling": 1,
        "half-a-doubling": 1,
        "longest-below-first": 1,
        "negative-limit": 1,
    }
    assert refused["deadline-1801"] == one_line(
        """deadline-1801: attempt_deadline_seconds is 1801, and Cloud Scheduler takes 15 to 1800, here whole seconds. Hand
        longer work over to something else (run.hand_over)."""
    )
    assert refused["deadline-119"] == one_line(
        """deadline-119: attempt_deadline_seconds (119) is below timeout_seconds (120): Cloud Scheduler would count an
        attempt as failed, and deliver again, while it still works. Set it to 120 or more, or leave it out."""
    )
    assert refused["no-retries"] == one_line(
        """no-retries: with retry_count = 0, a run whose attempt fails or dies is lost. Set retry_count to 5, or say that
        you want it so: allow_no_retries = true."""
    )
    assert refused["five-of-5-s"] == one_line(
        """five-of-5-s: the retries end 155 s after the first failure, and an attempt that died may hold its run for 420 s
        (timeout 120 + lease 300): the run would be lost without a word. They must go on for more than 430 s. Leave
        min_backoff_seconds and max_backoff_seconds out to have them derived, or set them higher, or lease_seconds lower."""
    )


def test_a_lease_that_must_outlast_the_job(terraform: Terraform) -> None:
    """Without renewal, a lease below the deadline is refused, and retries that end with it; a short retention always is."""
    refused = terraform.refusals(
        renew_lease=False,
        lease_seconds=60,
        attempt_deadline_seconds=180,
        retention_seconds=1477,
        jobs={"ends-at-70": HOURLY | {"attempt_deadline_seconds": 120, "min_backoff_seconds": 14, "max_backoff_seconds": 14}},
    )

    assert refused["scheduled-job"] == [
        *one_line(
            """scheduled-job: with renew_lease = false the lease must outlast the job, and lease_seconds (60) is below
            attempt_deadline_seconds (180): another attempt would take the run over while the first still works. Set
            lease_seconds to 180 or more, or renew_lease to true."""
        ),
        *one_line(
            """scheduled-job: retention_seconds (1477) is no longer than the retries may go on, 1297 s, with timeout and
            lease 1477 s: TTL could delete a record that a retry still needs, and the run would be done twice. Set it
            higher, or leave it out."""
        ),
    ]
    assert [message.split(",")[0] for message in refused["ends-at-70"]] == [
        "ends-at-70: with renew_lease = false the lease must outlast the job",
        "ends-at-70: the retries end 70 s after the first failure",
    ]


def test_retries_that_reach_the_next_tick(terraform: Terraform) -> None:
    """A run that is mended only after the next tick is warned of, once for each such job, with both times."""
    refused = terraform.refusals(
        schedule="*/4 * * * *",
        jobs={
            "every-5": {"schedule": "*/5 * * * *"},
            "every-7": {"schedule": "*/7 * * * *"},
            "whenever": {"schedule": "1,2 * * * *"},
        },
    )

    (warning,) = refused["check.retries_end_before_the_next_tick"]
    assert list(refused) == ["check.retries_end_before_the_next_tick"]
    late = "a run whose attempt crashes is done again only 270 s after its tick, and the next tick comes after 240 s"
    assert [line.split(". Google's")[0] for line in warning.splitlines()] == [
        f"every-7 (*/7 * * * *): {late}",
        f"scheduled-job (*/4 * * * *): {late}",
    ]


def one_line(text: str) -> list[str]:
    """The one message that Terraform tells."""
    return [" ".join(text.split())]
