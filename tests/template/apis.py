"""An HTTP stand-in for the three Google APIs that dedup/forward.py calls.

Each request is judged by Google's own discovery document, as google-api-python-client ships it: what isn't in there is a 400.
It keeps what it has started, and can lose the answer, refuse, fail or be slow. By itself, for a README's commands:

    python -m tests.template.apis --port 8090 [--workflow FILE] [--job FILE]

runs the workflow in `workflows-emulator`, and the job as Cloud Run does: a process for each attempt at its task.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

LOST = "lost"
"""Done, and the connection closed without a word."""
LOST_LATER = "lost and not listed yet"
"""The same, and the list doesn't show it to the look-up that follows."""
SLOW = "slow"
"""Done, and answered when the caller has given up."""

HOSTS = ("WORKFLOWEXECUTIONS_EMULATOR_HOST", "RUN_EMULATOR_HOST", "CLOUDBUILD_EMULATOR_HOST")

_DOCUMENTS = ("workflowexecutions.v1", "run.v2", "cloudbuild.v1")


class Invalid(Exception):
    """The request isn't in the discovery document. The message says what is wrong, and where."""


@dataclass(frozen=True)
class Method:
    """A method of an API, as its discovery document has it."""

    document: Mapping[str, Any]
    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Such as `run.projects.locations.jobs.run`."""
        return str(self.fields["id"])

    def check(self, query: list[tuple[str, str]], body: Any) -> None:
        """Returns if the method takes this query and this body.

        Raises:
            Invalid: it doesn't.
        """
        parameters = {**self.document["parameters"], **self.fields.get("parameters", {})}
        for name, text in query:
            schema = parameters.get(name, {"location": "path"})
            if schema["location"] != "query":
                raise Invalid(f"{self.id} has no query parameter {name}")
            self._check(name, int(text) if schema["type"] == "integer" else text, schema)
        for name, schema in parameters.items():
            if schema.get("required") and schema["location"] == "query" and name not in dict(query):
                raise Invalid(f"{self.id} needs the query parameter {name}")
        if "request" in self.fields:
            self._check("body", body, self.fields["request"])
        elif body is not None:
            raise Invalid(f"{self.id} takes no body")

    def _check(self, where: str, value: Any, schema: Mapping[str, Any]) -> None:
        if "$ref" in schema:
            schema = self.document["schemas"][schema["$ref"]]
        if schema.get("readOnly"):
            raise Invalid(f"{where} is Google's to set")
        types = {"string": str, "integer": int, "boolean": bool, "number": float, "object": dict, "array": list, "any": object}
        if not isinstance(value, types[schema["type"]]):
            raise Invalid(f"{where} is {value!r}, and not of type {schema['type']}")
        if "enum" in schema and value not in schema["enum"]:
            raise Invalid(f"{where} is {value!r}, and not one of {schema['enum']}")
        if schema["type"] == "array":
            for number, item in enumerate(value):
                self._check(f"{where}[{number}]", item, schema["items"])
        if schema["type"] == "object":
            for name, item in value.items():
                inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
                if inner is None:
                    raise Invalid(f"{where} has no field {name}")
                self._check(f"{where}.{name}", item, inner)


@cache
def methods() -> list[tuple[str, re.Pattern[str], Method]]:
    """Every method of the three APIs: its verb, its path, and itself."""
    found: list[tuple[str, re.Pattern[str], Method]] = []

    def walk(document: Mapping[str, Any], resource: Mapping[str, Any]) -> None:
        for fields in resource.get("methods", {}).values():
            path = re.sub(r"\\\{\w+\\\}", "[^/:]+", re.escape(fields["flatPath"]))
            found.append((fields["httpMethod"], re.compile(path), Method(document, fields)))
        for inner in resource.get("resources", {}).values():
            walk(document, inner)

    for name in _DOCUMENTS:
        text = files("googleapiclient").joinpath("discovery_cache", "documents", f"{name}.json").read_text()
        document = json.loads(text)
        walk(document, document)
    return found


def method_of(verb: str, path: str) -> Method:
    """The method that a request is for.

    Raises:
        Invalid: there is none.
    """
    for known_verb, known_path, method in methods():
        if verb == known_verb and known_path.fullmatch(path.lstrip("/")):
            return method
    raise Invalid(f"no method of {', '.join(_DOCUMENTS)} is {verb} {path}")


@dataclass
class Started:
    """Something that was started, as its API lists it."""

    parent: str
    resource: dict[str, Any]
    listed_at: int = 0
    """Which look-up after the start shows it first, 0 for the next."""


@dataclass
class GoogleApis:
    """The three APIs.

    Args:
        on_start: is told of everything that is started, after it is listed.
    """

    on_start: Callable[[Started], None] = lambda started: None
    faults: deque[str | int] = field(default_factory=deque)
    """What happens to the next calls that start something, one each; None of them left: nothing does."""
    look_up_faults: deque[str | int] = field(default_factory=deque)
    """The same for calls that list."""
    takes_filters: bool = True
    slow_seconds: float = 1.0
    started: list[Started] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    """The ids of all methods that were called, in their order."""
    host: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, verb: str, target: str, raw: bytes) -> tuple[int, Any] | None:
        """Answers one request: a status and a body, or None where the answer gets lost."""
        url = urlsplit(target)
        query = parse_qsl(url.query, keep_blank_values=True)
        body = json.loads(raw) if raw else None
        try:
            method = method_of(verb, url.path)
            method.check(query, body)
        except Invalid as invalid:
            return _error(400, "INVALID_ARGUMENT", str(invalid))
        with self._lock:
            self.called.append(method.id)
            faults = self.faults if verb == "POST" else self.look_up_faults
            fault = faults.popleft() if faults else None
        if isinstance(fault, int) and fault:
            return _error(fault, {403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}.get(fault, "INTERNAL"))
        answer = self._start(method, url.path, body, fault) if verb == "POST" else self._list(method, url.path, dict(query))
        if fault == SLOW:
            time.sleep(self.slow_seconds)
        return None if fault in (LOST, LOST_LATER) else answer

    def _start(self, method: Method, path: str, body: Any, fault: str | int | None) -> tuple[int, Any]:
        unique = uuid.uuid4().hex[:12]
        parent = path.strip("/").split("/", 1)[1].removesuffix("/executions").removesuffix(":run")
        match method.id.split(".")[0]:
            case "workflowexecutions":
                resource = {**copy.deepcopy(body), "name": f"{parent}/executions/{unique}", "state": "ACTIVE"}
                answer = resource
            case "run":
                override = body.get("overrides", {}).get("containerOverrides", [{}])[0]
                container = {"image": "job", "env": [{"name": "FROM_THE_JOB", "value": "itself"}, *override.get("env", [])]}
                resource = {"name": f"{parent}/executions/{unique}", "template": {"containers": [container]}}
                answer = {"name": f"{parent}/operations/{unique}", "metadata": resource}
            case _:
                parent, _, trigger_id = parent.rpartition("/triggers/")
                resource = {"id": unique, "name": f"{parent}/builds/{unique}", "buildTriggerId": trigger_id}
                resource["substitutions"] = body["source"]["substitutions"]
                answer = {"name": f"operations/build/{unique}", "metadata": {"build": resource}}
        started = Started(parent, resource, listed_at=1 if fault == LOST_LATER else 0)
        with self._lock:
            self.started.insert(0, started)
        self.on_start(started)
        return 200, answer

    def _list(self, method: Method, path: str, query: dict[str, str]) -> tuple[int, Any]:
        kept = self._filter(method, query.get("filter"))
        if kept is None:
            return _error(400, "INVALID_ARGUMENT", f"filter {query['filter']!r} can't be read")
        parent = path.strip("/").split("/", 1)[1].removesuffix("/executions").removesuffix("/builds")
        with self._lock:
            shown = [one for one in self.started if one.parent == parent and one.listed_at == 0]
            for one in self.started:
                one.listed_at = max(0, one.listed_at - 1)
        found = [self._view(method, query, one.resource) for one in shown if kept(one.resource)]
        first, size = int(query.get("pageToken", 0)), int(query.get("pageSize", 100))
        page = {method.id.split(".")[-2]: found[first : first + size]}
        return 200, page | ({"nextPageToken": str(first + size)} if first + size < len(found) else {})

    def _filter(self, method: Method, text: str | None) -> Callable[[Mapping[str, Any]], bool] | None:
        if text is None:
            return lambda resource: True
        match = re.fullmatch(r'(labels\.run_id|trigger_id)="([^"]*)"', text)
        if match is None or not self.takes_filters:
            return None
        if match[1] == "trigger_id":
            return lambda resource: resource["buildTriggerId"] == match[2]
        return lambda resource: resource.get("labels", {}).get("run_id") == match[2]

    @staticmethod
    def _view(method: Method, query: Mapping[str, str], resource: Mapping[str, Any]) -> Mapping[str, Any]:
        if method.id.startswith("workflowexecutions") and query.get("view") != "FULL":
            return {"name": resource["name"], "state": resource["state"]}
        return resource


def _error(status: int, name: str, message: str = "as it was told") -> tuple[int, Any]:
    return status, {"error": {"code": status, "message": message, "status": name}}


@contextmanager
def serving_apis(apis: GoogleApis, port: int = 0) -> Iterator[GoogleApis]:
    """Serves them on 127.0.0.1 for as long as the `with` lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, verb: str) -> None:
            answer = apis.answer(verb, self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self.close_connection = True  # of all, so that a lost answer is nothing special
            if answer is None:
                return
            status, body = answer
            text = json.dumps(body).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(text)
            except OSError:  # the caller has given up
                pass

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    server = Server(("127.0.0.1", port), Handler)
    apis.host = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield apis
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class CloudRunJobs:
    """Runs the task of each execution as Cloud Run does: again, until it ends well or its retries are used up.

    Args:
        command: of the job.
        max_retries: of its task.
        environ: of its container.
    """

    def __init__(self, command: list[str], *, max_retries: int, environ: Mapping[str, str]) -> None:
        self._command = command
        self._max_retries = max_retries
        self._environ = environ
        self._threads: list[threading.Thread] = []
        self._ended = False
        self.attempts: list[subprocess.Popen[bytes]] = []

    def start(self, started: Started) -> None:
        """Runs one execution, in the background."""
        env = started.resource["template"]["containers"][0]["env"]
        environ = {**self._environ, **{one["name"]: one["value"] for one in env}}
        environ["CLOUD_RUN_EXECUTION"] = started.resource["name"].rpartition("/")[2]
        thread = threading.Thread(target=self._run, args=(environ,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, environ: dict[str, str]) -> None:
        for number in range(self._max_retries + 1):
            process = subprocess.Popen(
                self._command, env={**environ, "CLOUD_RUN_TASK_ATTEMPT": str(number)}, start_new_session=True
            )
            self.attempts.append(process)
            if process.wait() == 0 or self._ended:
                return

    def kill(self, number: int = -1) -> None:
        """Lets a task attempt die, the latest by default."""
        os.killpg(self.attempts[number].pid, signal.SIGKILL)

    def wait(self, seconds: float = 30) -> None:
        """Waits until every execution is over."""
        for thread in self._threads:
            thread.join(seconds)
            assert not thread.is_alive(), "the job goes on"

    def end(self) -> None:
        """Ends what still runs."""
        self._ended = True
        for process in self.attempts:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        self.wait()


_of_this_execution = threading.local()


def run_workflow(path: str, started: Started) -> Any:
    """Runs a workflow's definition in the emulator, and keeps what it returned with its execution.

    One thing is replaced: `auth`, for which there is no account, by what the Firestore emulator takes for one.
    """
    from workflows_emulator.lib import sys_utils
    from workflows_emulator.main import execute_workflow, load_workflow

    _of_this_execution.environ = {"GOOGLE_CLOUD_WORKFLOW_EXECUTION_ID": started.resource["name"].rpartition("/")[2]}
    sys_utils.get_env = lambda name, *default: _of_this_execution.environ.get(name) or os.environ.get(name, *default)
    started.resource["state"] = "FAILED"
    definition = _without_account(load_workflow(path))
    returned = execute_workflow(definition, {"args": json.loads(started.resource["argument"])})
    started.resource.update(state="SUCCEEDED", result=json.dumps(returned))
    return returned


def _without_account(definition: Any) -> Any:
    if isinstance(definition, list):
        return [_without_account(item) for item in definition]
    if not isinstance(definition, dict):
        return definition
    fields = {name: _without_account(value) for name, value in definition.items() if name != "auth"}
    if "auth" in definition:
        fields["headers"] = {**fields.get("headers", {}), "Authorization": "Bearer owner"}
    return fields


def main() -> None:
    """Serves the stand-in until it is interrupted."""
    arguments = argparse.ArgumentParser(description="A stand-in for Workflows executions, Cloud Run jobs and Cloud Build.")
    arguments.add_argument("--port", type=int, default=8090)
    arguments.add_argument("--workflow", help="the definition that executions run")
    arguments.add_argument("--job", help="the file that a Cloud Run job runs")
    arguments.add_argument("--max-retries", type=int, default=3, help="of the job's task")
    told = arguments.parse_args()
    jobs = CloudRunJobs([sys.executable, told.job or ""], max_retries=told.max_retries, environ=os.environ)

    def on_start(started: Started) -> None:
        print(f"started {started.resource['name']}", flush=True)
        if told.workflow and "argument" in started.resource:
            threading.Thread(
                target=lambda: print(f"the workflow returned {run_workflow(told.workflow, started)}", flush=True), daemon=True
            ).start()
        if told.job and "template" in started.resource:
            jobs.start(started)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with serving_apis(GoogleApis(on_start), told.port) as apis:
        print(f"Workflows executions, Cloud Run jobs and Cloud Build at {apis.host}", flush=True)
        try:
            threading.Event().wait()
        except (KeyboardInterrupt, SystemExit):
            jobs.end()


if __name__ == "__main__":
    main()
