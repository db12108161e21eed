"""Starts work in a Google API once for each run: the API itself would start it once for each call.

Each start is one authorised REST call, which hands the run's id on in its payload. Before it, and after a call whose fate isn't
known, it is looked whether the run's execution is there, and that one is taken. What an API can't tell is left to the work
itself, which must check the id again before it changes anything: an execution whose answer was lost may not be listed yet.

The shapes are those of the discovery documents: https://workflowexecutions.googleapis.com/$discovery/rest?version=v1,
https://run.googleapis.com/$discovery/rest?version=v2, https://cloudbuild.googleapis.com/$discovery/rest?version=v1.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import google.auth
import requests
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from dedup.run import PermanentError, Run

START_SECONDS = 30.0
"""One start, with its look-ups; one call takes a third of it at most."""
LOOK_UP_PAGES = 5
"""Of 100 executions each, the newest first: an execution of this run is minutes old."""

_FOR_GOOD = (400, 403, 404)
"""No retry mends these; any other answer that isn't 2xx may be another one next time."""
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)

_Fields = Mapping[str, Any]

log = logging.getLogger("dedup")


class StartFailed(Exception):
    """Whether the work was started isn't known, or it wasn't for now. Let it go on up: Cloud Scheduler retries."""


def start_workflow_execution(run: Run, workflow: str, argument: _Fields | None = None, *, look_first: bool = True) -> str:
    """Starts an execution of a workflow, unless this run has one.

    Args:
        run: its id is `run_id` in the workflow's argument.
        workflow: `projects/PROJECT/locations/LOCATION/workflows/WORKFLOW`.
        argument: what else the workflow is given.
        look_first: whether to look for an execution before the first call; False saves that call.

    Returns:
        The execution's name, whatever became of it.

    Raises:
        PermanentError: Google refused it, and always will.
        StartFailed: Cloud Scheduler's next delivery may succeed.
        ValueError: the workflow's name is none, or the argument has a `run_id` of its own.
    """
    _require_name(workflow, "workflows")
    label = run.id[:63]  # a label's value ends there; the argument has all of it
    body = {"argument": json.dumps(_with_token(argument, {"run_id": run.id})), "labels": {"run_id": label}}

    def is_of_this_run(execution: _Fields) -> bool:
        sent = _json(execution.get("argument"))
        return isinstance(sent, dict) and sent.get("run_id") == run.id

    return _start(
        run,
        _Api("workflowexecutions", f"v1/{workflow}/executions", body, lambda execution: str(execution["name"])),
        _Listing(
            f"v1/{workflow}/executions",
            "executions",
            {"view": "FULL", "filter": f'labels.run_id="{label}"'},
            is_of_this_run,
            lambda execution: str(execution["name"]),
        ),
        look_first=look_first,
    )


def start_cloud_run_job(
    run: Run, job: str, *, env: Mapping[str, str] | None = None, args: list[str] | None = None, look_first: bool = True
) -> str:
    """Starts an execution of a Cloud Run job, unless this run has one.

    Once the run is handed over, it is this attempt's execution that is looked for: one that an earlier attempt has started
    finds the run to be another's, and ends.

    Args:
        run: its id is RUN_ID in the job's environment; where the run is handed over, its attempt is ATTEMPT_ID.
        job: `projects/PROJECT/locations/LOCATION/jobs/JOB`.
        env: more variables.
        args: in place of the job's own arguments.
        look_first: as in `start_workflow_execution`.

    Returns:
        The execution's name, whatever became of it.

    Raises:
        PermanentError, StartFailed: as in `start_workflow_execution`.
        ValueError: the job's name is none, or `env` has one of the two variables.
    """
    _require_name(job, "jobs")
    token = {"RUN_ID": run.id} | ({"ATTEMPT_ID": run.attempt_id} if run.handed_over else {})
    override: dict[str, Any] = {"env": [{"name": n, "value": v} for n, v in _with_token(env, token).items()]}
    if args is not None:
        override["args"] = args

    def is_of_this_run(execution: _Fields) -> bool:
        containers = execution.get("template", {}).get("containers", [])
        sent = {one["name"]: one.get("value") for container in containers for one in container.get("env", [])}
        return token.items() <= sent.items()

    return _start(
        run,
        _Api("run", f"v2/{job}:run", {"overrides": {"containerOverrides": [override]}}, _name_of_operation),
        _Listing(f"v2/{job}/executions", "executions", {}, is_of_this_run, lambda execution: str(execution["name"])),
        look_first=look_first,
    )


def start_build(
    run: Run,
    trigger: str,
    *,
    substitutions: Mapping[str, str] | None = None,
    branch: str | None = None,
    look_first: bool = True,
) -> str:
    """Runs a Cloud Build trigger, unless this run has a build.

    Args:
        run: its id is the substitution `_RUN_ID`, which the build must name.
        trigger: `projects/PROJECT/locations/LOCATION/triggers/ID`, with the trigger's id (a UUID), not its name.
        substitutions: more of them.
        branch: what to build; None: what the trigger says.
        look_first: as in `start_workflow_execution`.

    Returns:
        The build's name, whatever became of it.

    Raises:
        PermanentError, StartFailed: as in `start_workflow_execution`.
        ValueError: the trigger's name is none, or `substitutions` has a `_RUN_ID`.
    """
    _require_name(trigger, "triggers", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    _, project, _, location, _, trigger_id = trigger.split("/")
    parent = f"projects/{project}/locations/{location}"
    source: dict[str, Any] = {"substitutions": _with_token(substitutions, {"_RUN_ID": run.id})}
    if branch is not None:
        source["branchName"] = branch

    def name_of(build: _Fields) -> str:
        return str(build.get("name") or f"{parent}/builds/{build['id']}")

    return _start(
        run,
        _Api(
            "cloudbuild",
            f"v1/{trigger}:run",
            {"projectId": project, "triggerId": trigger_id, "source": source},
            lambda operation: name_of(operation["metadata"]["build"]),
        ),
        _Listing(
            f"v1/{parent}/builds",
            "builds",
            {"projectId": project, "filter": f'trigger_id="{trigger_id}"'},
            lambda build: build.get("substitutions", {}).get("_RUN_ID") == run.id,
            name_of,
        ),
        look_first=look_first,
    )


@dataclass(frozen=True, slots=True)
class _Api:
    """The call that starts something.

    Args:
        name: of the API, the first part of its host.
        path: what is posted to.
        body: what is posted.
        name_of: finds in the answer what was started.
    """

    name: str
    path: str
    body: _Fields
    name_of: Callable[[_Fields], str]


@dataclass(frozen=True, slots=True)
class _Listing:
    """The call that looks for it."""

    path: str
    items: str
    query: Mapping[str, str]
    is_of_this_run: Callable[[_Fields], bool]
    name_of: Callable[[_Fields], str]


class _Refused(Exception):
    """Google's answer is an error.

    Args:
        status: its HTTP status.
        message: Google's own words.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class _Unclear(Exception):
    """No answer came, or half of one."""


def _start(run: Run, api: _Api, listing: _Listing, *, look_first: bool) -> str:
    connection = _Connection(api.name)
    with connection.session:
        try:
            found = _find(connection, listing) if look_first else None
            if found is None:
                run.ensure_held()  # what comes now can't be taken back
                found = _post(connection, api, listing)
        except _Refused as refused:
            told = f"{api.name}.googleapis.com answered {refused}"
            if refused.status in _FOR_GOOD:
                raise PermanentError(told) from refused
            raise StartFailed(told) from refused
        except _Unclear as unclear:
            raise StartFailed(f"{api.name}.googleapis.com gave no answer: {unclear}") from unclear
    return found


def _post(connection: _Connection, api: _Api, listing: _Listing) -> str:
    try:
        answer = connection.call("POST", api.path, body=api.body)
        return str(_read(api.name_of, answer))
    except (_Refused, _Unclear) as fault:
        if isinstance(fault, _Refused) and fault.status < 500 and fault.status != 408:
            raise
        log.warning("%s: start unclear, looking for it: %s", api.name, fault)
        try:
            found = _find(connection, listing)
        except (_Refused, _Unclear) as blind:
            log.warning("%s: it can't be looked for: %s", api.name, blind)
            found = None
        if found is None:
            raise
        return found


def _find(connection: _Connection, listing: _Listing) -> str | None:
    """Looks through the newest executions for one of this run."""
    query = dict(listing.query)
    for _ in range(LOOK_UP_PAGES):
        page = _page(connection, listing, query)
        for one in page.get(listing.items, []):
            if _read(listing.is_of_this_run, one):
                return str(_read(listing.name_of, one))
        if not page.get("nextPageToken"):
            return None
        query["pageToken"] = page["nextPageToken"]
    log.warning("%s: none of the newest %d is of this run; older ones weren't looked at", listing.path, LOOK_UP_PAGES * 100)
    return None


def _page(connection: _Connection, listing: _Listing, query: dict[str, str]) -> _Fields:
    try:
        return connection.call("GET", listing.path, query={**query, "pageSize": "100"})
    except _Refused as refused:
        if refused.status != 400 or "filter" not in query:
            raise
        # A filter only shortens the list: each item is compared. The run must not fail for good by its grammar.
        log.warning("%s: filter %s refused, looking without it: %s", listing.path, query.pop("filter"), refused)
        return connection.call("GET", listing.path, query={**query, "pageSize": "100"})


def _read(read: Callable[[_Fields], Any], answer: _Fields) -> Any:
    try:
        return read(answer)
    except (LookupError, TypeError, AttributeError) as fault:
        raise _Unclear(f"the answer is not of the form that it is documented in: {fault!r}") from fault


class _Connection:
    """One start's way to an API, and the time that it has.

    NAME_EMULATOR_HOST, as `127.0.0.1:8090`, names a stand-in for it, by the convention of Google's own emulators.
    """

    def __init__(self, api: str) -> None:
        emulator = os.environ.get(f"{api.upper()}_EMULATOR_HOST")
        self._root = f"http://{emulator}" if emulator else f"https://{api}.googleapis.com"
        self._ends_at = time.monotonic() + START_SECONDS
        # A session for each start: threads may not share one.
        self.session: requests.Session = requests.Session() if emulator else AuthorizedSession(_credentials())  # type: ignore[no-untyped-call]

    def call(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: _Fields | None = None) -> _Fields:
        """Sends one request, once.

        Raises:
            _Refused: Google's answer is an error.
            _Unclear: there is no telling what Google did.
        """
        timeout = min(START_SECONDS / 3, self._ends_at - time.monotonic())
        if timeout <= 0:
            raise _Unclear(f"no time left of {START_SECONDS:g} s")
        try:
            answer = self.session.request(method, f"{self._root}/{path}", params=query, json=body, timeout=timeout)
        except (requests.RequestException, GoogleAuthError) as fault:
            raise _Unclear(str(fault)) from fault
        if not answer.ok:
            raise _Refused(answer.status_code, _message(answer))
        fields = _json(answer.text)
        if not isinstance(fields, dict):
            raise _Unclear("the answer is no JSON object")
        return fields


_made_credentials: list[Any] = []
_making_credentials = threading.Lock()


def _credentials() -> Any:
    """The environment's credentials, found once."""
    with _making_credentials:
        if not _made_credentials:
            _made_credentials.append(google.auth.default(scopes=_SCOPES)[0])
        return _made_credentials[0]


def _require_name(name: str, collection: str, resource_id: str = "[A-Za-z0-9_-]+") -> None:
    if not re.fullmatch(rf"projects/[^/]+/locations/[^/]+/{collection}/{resource_id}", name):
        what = "ID (a UUID)" if collection == "triggers" else "NAME"
        raise ValueError(f"{name!r} is not of the form projects/PROJECT/locations/LOCATION/{collection}/{what}")


def _with_token(given: _Fields | None, token: Mapping[str, str]) -> dict[str, Any]:
    given = given if given is not None else {}
    for name in token.keys() & given.keys():
        raise ValueError(f"{name} is the run's own: leave it out of what is handed on")
    return {**given, **token}


def _name_of_operation(operation: _Fields) -> str:
    return str(operation["metadata"]["name"])


def _message(answer: requests.Response) -> str:
    fields = _json(answer.text)
    error = fields.get("error") if isinstance(fields, dict) else None
    if isinstance(error, dict):
        return f"{error.get('status', '')} {error.get('message', '')}".strip()
    return answer.text[:200]


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None
