"""Forks acted out: a fork does what is its own to do, its checks stay green, and it takes an upgrade without a conflict."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.template.e2e.fork import DIVIDED, Fork, fork_of, template
from tests.template.size import WHOLE
from tests.template.terraform.workspace import Terraform, TerraformMissing, terraform_version

long = pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")

JOB = """
import os

import dedup
import reports


def run_job_logic(run):
    if "REPORTS" not in os.environ:
        raise dedup.PermanentError("REPORTS is not set: where do the reports go?")
    return reports.write(run.schedule_time)


def handle_scheduled_job(request):
    return dedup.handle(request, run_job_logic)
"""
REPORTS = """
import rich


def write(when): return "report of %s" % when.date()
"""
TEST_REPORTS = """
import os
from dedup import testing
from dedup.record import Status

def test_writes_a_report(monkeypatch):
    monkeypatch.setenv("REPORTS", "somewhere")
    with testing.scheduler() as scheduler:
        assert scheduler.deliver().text == "Run processed"
        assert scheduler.record().result == "report of 2026-10-16"

def test_fails_for_good_where_it_is_not_set_up():
    with testing.scheduler() as scheduler:
        assert scheduler.deliver().status_code == 500
        assert scheduler.record().status is Status.FAILED
"""


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Fork:
    """The template, which has no changes that forks would get."""
    return template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def fork(upstream: Fork, tmp_path: Path) -> Fork:
    """A clone of it."""
    return fork_of(upstream, tmp_path / "fork")


def with_a_module(fork: Fork) -> None:
    """(a) The job imports a module of the fork's, which needs a package, and fails for good without its environment."""
    fork.write("main.py", JOB)
    fork.write("reports.py", REPORTS)
    fork.write("tests/test_reports.py", TEST_REPORTS)
    fork.delete("tests/test_job.py")
    fork.append("requirements.txt", "rich==15.0.0")
    fork.append(".gcloudignore", "!/reports.py")


def with_a_package(fork: Fork) -> None:
    """(b) The job reads binary data of a package that has packages in it."""
    fork.write("model/__init__.py", "")
    fork.write(
        "model/weights/__init__.py", "from pathlib import Path\n\ndata = Path(__file__).with_name('größe 1.bin').read_bytes()\n"
    )
    fork.write("model/weights/größe 1.bin", bytes(range(256)))
    fork.append(".gcloudignore", "!/model/")
    fork.replace("main.py", "import dedup\n", "import dedup\nimport model.weights\n")
    fork.replace("main.py", 'return "replace this with your job"', "return str(len(model.weights.data))")
    fork.append(
        "tests/test_job.py",
        "\n\ndef test_the_result(scheduler):\n    scheduler.deliver()\n    assert scheduler.record().result == '256'",
    )


def with_spanner(fork: Fork) -> None:
    """(c) The runs are kept in Spanner."""
    fork.append("requirements.txt", "-r dedup/stores/requirements-spanner.txt")
    fork.write("terraform/production.tfvars", tfvars('store = "spanner"', 'spanner_instance = "main"'))


def with_redis(fork: Fork) -> None:
    """(c) The runs are kept in Redis."""
    fork.append("requirements.txt", "-r dedup/stores/requirements-redis.txt")
    fork.write(
        "terraform/production.tfvars",
        tfvars('store="memorystore"', 'network="default"', "create_database=false", 'memorystore={host="10.0.0.3"}'),
    )


def with_two_jobs(fork: Fork) -> None:
    """(d) One function does two jobs."""
    fork.write(
        "main.py",
        "import dedup\n\n\ndef export(run):\n    return 'exported'\n\n\nasync def sync(run):\n    return 'synced'\n\n\n"
        "def handle_scheduled_job(request):\n    return dedup.handle(request, {'nightly': export, 'hourly': sync})\n",
    )
    fork.write(
        "tests/test_job.py",
        "from dedup import testing\n\n\ndef test_each_does_its_own():\n    with testing.scheduler() as scheduler:\n"
        "        for job, result in [('nightly', 'exported'), ('hourly', 'synced')]:\n"
        "            assert scheduler.deliver(job).text == 'Run processed'\n"
        "            assert scheduler.record(job).result == result\n"
        "        assert 'hourly, nightly' in scheduler.deliver('weekly').text\n",
    )


def with_less(fork: Fork) -> None:
    """(e) What the fork doesn't need is deleted."""
    fork.delete("examples", "benchmarks", "docs", "README.md", "CHANGELOG.md", "terraform/staging.tfvars", "terraform/examples")


def with_its_own_style(fork: Fork) -> None:
    """(f) main.py is written in another style, and reads its environment when it is imported."""
    fork.write(
        "main.py",
        "import dedup, os\nBUCKET=os.environ['BUCKET']\n\ndef  run_job_logic( run ) :\n  l = BUCKET\n  return l\n\n"
        "handle_scheduled_job=lambda request: dedup.handle(request,run_job_logic)\n",
    )
    fork.write("tests/conftest.py", "import os\nos.environ.setdefault('BUCKET','b')\n")
    fork.append("tests/test_job.py", "import pytest\n@pytest.mark.slow\ndef test_slow(): pass")


def with_its_own_tests_alone(fork: Fork) -> None:
    """(g) The template's tests are deleted."""
    fork.delete("tests/template")


KINDS = [
    with_a_module,
    with_a_package,
    with_spanner,
    with_redis,
    with_two_jobs,
    with_less,
    with_its_own_style,
    with_its_own_tests_alone,
]
Kind = Callable[[Fork], None]
Plan = Callable[[Kind], tuple[dict[str, Any], Path]]


def tfvars(*lines: str) -> str:
    """What a fork sets for Terraform, not formatted as Terraform would."""
    return "\n".join(['project_id="my-project"', 'region="us-central1"', 'schedule="30 2 * * *"', *lines, ""])


def name(kind: Kind) -> str:
    """For a test's id."""
    return kind.__name__


@pytest.mark.parametrize("kind", KINDS if WHOLE else [with_a_module, with_its_own_style], ids=name)
def test_a_forks_checks_are_green(fork: Fork, kind: Kind) -> None:
    """`make test-job` and `make lint` pass in a fork that has done what is its own to do."""
    kind(fork)
    fork.commit("Our job")

    ran = fork.succeeds("make", "test-job")
    assert " passed" in ran
    fork.succeeds("make", "lint")


@long
def test_what_is_surely_wrong_is_told(fork: Fork) -> None:
    """`make lint` tells a fork of a name that isn't there; `make test-job` tells it of a main.py that can't be imported."""
    fork.append("main.py", "\n\ndef later():\n    return nowhere")
    done = fork.run("make", "lint")
    assert done.returncode != 0
    assert "F821 Undefined name `nowhere`" in done.stdout

    fork.append("main.py", "import nothing_of_that_name")
    done = fork.run("make", "test-job")
    assert done.returncode != 0
    assert "main.py can't be imported" in done.stdout
    assert "No module named 'nothing_of_that_name'" in done.stdout


@long
def test_a_main_that_connects_at_import_is_told(fork: Fork) -> None:
    """`make test-job` refuses a main.py that connects to something when it is imported."""
    fork.append("main.py", "\nimport socket\n\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))")
    done = fork.run("make", "test-job")
    assert done.returncode != 0
    assert "main.py connects to socket.connect ('127.0.0.1', 9) when it is imported" in done.stdout


@long
def test_a_module_that_is_not_deployed_is_told(fork: Fork) -> None:
    """`make test-job` tells of a module that main.py imports and .gcloudignore leaves out, with the line to add."""
    with_a_module(fork)
    fork.replace(".gcloudignore", "!/reports.py\n", "")
    done = fork.run("make", "test-job")
    assert done.returncode != 0
    assert "main.py imports reports.py, which .gcloudignore leaves out: add a line such as !/reports.py" in done.stdout


@long
def test_what_a_fork_sets_up_by_files_of_its_own(fork: Fork) -> None:
    """A fork's own pytest.ini and ruff.toml are for its own code, and not for the template's."""
    fork.write("pytest.ini", "[pytest]\naddopts = -q\n")
    fork.write("ruff.toml", '[lint]\nselect = ["FBT", "TRY"]\n')
    fork.append("main.py", "\nimport atexit\n\natexit.register(print, 'bye')\nprint('starting', end='')")
    assert "6 passed" in fork.succeeds("make", "test-job")
    fork.succeeds("make", "lint")


@long
def test_a_client_that_looks_for_its_credentials_is_no_connection(fork: Fork) -> None:
    """Where Google's libraries ask the metadata server for credentials when main.py makes a client, that is let pass."""
    fork.append("main.py", "\nimport socket\n\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 18931))")
    fork.succeeds("make", "test-job", GCE_METADATA_HOST="127.0.0.1:18931")


@long
def test_a_fork_may_ask_for_more(fork: Fork) -> None:
    """Once pyproject.toml's own part has sections for types and format, `make lint` holds the fork to them."""
    fork.replace("pyproject.toml", "[tool.ruff]\n", '[tool.mypy]\nfiles = "main.py"\n\n[tool.ruff.format]\n\n[tool.ruff]\n')
    fork.succeeds(".venv/bin/ruff", "format", "main.py", "tests/test_job.py")
    fork.succeeds("make", "lint")
    fork.append("main.py", "\nx: int = 'no number'")
    done = fork.run("make", "lint")
    assert done.returncode != 0
    assert "1 file would be reformatted" in done.stdout
    fork.succeeds(".venv/bin/ruff", "format", "main.py")
    done = fork.run("make", "lint")
    assert done.returncode != 0
    assert "error: Incompatible types in assignment" in done.stdout


@long
@pytest.mark.alone
@pytest.mark.timeout(600)
def test_the_whole_suite_is_green_in_a_fork(fork: Fork) -> None:
    """`make test` passes in a fork: nothing of the template's tests looks into what is the fork's."""
    with_a_module(fork)
    fork.commit("Our job")
    ran = fork.succeeds("make", "test", timeout=580)
    print(ran[-2000:])
    assert " failed" not in ran


@long
@pytest.mark.alone
@pytest.mark.timeout(600)
def test_the_suite_is_green_without_what_was_deleted(fork: Fork) -> None:
    """Without examples/, benchmarks/ and docs/, what is left is collected and passes."""
    with_less(fork)
    with_a_package(fork)
    fork.commit("Our job")
    fork.succeeds(".venv/bin/pytest", "tests/template", "--collect-only", "-q")
    quick = "not simulation and not contract and not chaos and not faults and not fork"
    ran = fork.succeeds(
        ".venv/bin/pytest", "tests/template", "-q", "-k", quick, "-n", "2", "--dist", "loadgroup", timeout=580, WHOLE="0"
    )
    assert " failed" not in ran


@pytest.fixture(scope="module")
def planned(upstream: Fork, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Plans a fork's production, and gives the plan and the archive that it deploys."""

    def plan(kind: Kind) -> tuple[dict[str, Any], Path]:
        fork = fork_of(upstream, tmp_path_factory.mktemp("planned") / "fork")
        fork.write("terraform/production.tfvars", tfvars())
        kind(fork)
        terraform = Terraform(fork.folder / "terraform")
        try:
            terraform_version()
            terraform.init()
        except TerraformMissing as missing:
            pytest.skip(str(missing))
        planned = terraform.plan("-var-file=production.tfvars")
        [archive] = terraform.folder.glob(".terraform/*-source.zip")
        return planned, archive

    return plan


@pytest.mark.xdist_group("terraform")
@pytest.mark.parametrize("kind", [with_a_module, with_a_package], ids=name)
@long
def test_what_a_fork_adds_is_deployed(planned: Plan, kind: Kind) -> None:
    """Terraform deploys a fork's modules and packages byte for byte, and none of its tests or notes."""
    with zipfile.ZipFile(planned(kind)[1]) as archive:
        deployed = {name: archive.read(name) for name in archive.namelist()}
    added = {name for name in deployed if not name.startswith("dedup/")} - {"main.py", "requirements.txt"}
    assert (
        added
        == {
            with_a_module: {"reports.py"},
            with_a_package: {"model/__init__.py", "model/weights/__init__.py", "model/weights/größe 1.bin"},
        }[kind]
    )
    assert deployed.get("model/weights/größe 1.bin", bytes(range(256))) == bytes(range(256))


@pytest.mark.xdist_group("terraform")
@pytest.mark.parametrize(
    ("kind", "store"), [(with_spanner, "spanner://"), (with_redis, "redis://10.0.0.3")], ids=["spanner", "redis"]
)
@long
def test_another_store_is_one_line(planned: Plan, kind: Kind, store: str) -> None:
    """With one line in requirements.txt and `store` in the variables, the plan takes another store and its packages."""
    plan, path = planned(kind)
    [function] = [
        resource["values"]
        for resource in plan["planned_values"]["root_module"]["resources"]
        if "cloudfunctions2" in resource["type"]
    ]
    url = function["service_config"][0]["environment_variables"].get("DEDUP_STORE", store)
    assert url.startswith(store)
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("requirements.txt").decode().splitlines()
        included = lines[-1].removeprefix("-r ")
        assert included in archive.namelist()
    assert "functions-framework" in "".join(lines)  # Cloud Functions looks for it here, and would add another one


def changed(upstream: Fork, folder: Path) -> Fork:
    """The template's next version, in which each file that a fork may have changed has changed, too."""
    upstream.git("clone", "--quiet", str(upstream.folder), str(folder))
    newer = Fork(folder)
    newer.replace("requirements.txt", "flask==3.1.3\n", "flask==3.1.2\n")
    newer.replace(".gcloudignore", "__pycache__/\n", "__pycache__/\n*.orig\n")
    newer.replace("main.py", '"""Your scheduled job. ', '"""Your job. ')
    newer.append("README.md", "New.")
    newer.append("CHANGELOG.md", "New.")
    newer.append("docs/operations.md", "New.")
    newer.write("docs/new.md", "New.\n")
    newer.replace("requirements-dev.txt", "\n-r requirements.txt\n", "\n# as deployed:\n-r requirements.txt\n")
    newer.append("pyproject.toml", "# newer")
    newer.replace("tests/test_job.py", "Your job's tests.", "Tests of your job.")
    newer.append("dedup/__init__.py", "# newer")
    newer.commit("The next version")
    return newer


@pytest.mark.parametrize(
    "kind", [with_a_module, with_a_package, with_less, with_its_own_style] if WHOLE else [with_a_module], ids=name
)
def test_an_upgrade_merges(upstream: Fork, fork: Fork, tmp_path: Path, kind: Kind) -> None:
    """`make upgrade` merges the next version into a fork, leaves what is the fork's as it was, and its checks pass."""
    kind(fork)
    fork.append("requirements-dev.txt", "rich==15.0.0")
    fork.append(".gitignore", "*.mine")
    fork.append("terraform/production.tfvars", "# mine")
    fork.commit("Our job")
    newer = changed(upstream, tmp_path / "newer")
    fork.git("remote", "set-url", "upstream", str(newer.folder))
    changed_here = fork.git("diff", "--name-only", "-z", "--diff-filter=AM", "upstream/main").strip("\0").split("\0")
    own = set(changed_here) - set(DIVIDED)
    before = {path: (fork.folder / path).read_bytes() for path in own}

    said = fork.succeeds("make", "upgrade")

    assert "Merged" in said
    assert " passed" in said
    assert fork.git("status", "--porcelain") == ""
    assert (fork.folder / "dedup/__init__.py").read_text().endswith("# newer\n")
    assert "flask==3.1.2\n" in (fork.folder / "requirements.txt").read_text()
    assert before == {path: (fork.folder / path).read_bytes() for path in own}
    assert {"rich==15.0.0", "*.mine"} <= {(fork.folder / path).read_text().splitlines()[-1] for path in DIVIDED}
    assert (fork.folder / "docs").exists() == (kind is not with_less)
    assert fork.succeeds("make", "upgrade") == "Nothing is newer than what is here.\n"


@pytest.mark.parametrize("kind", [with_a_module, with_a_package], ids=name)
def test_a_plain_merge_has_no_conflict(upstream: Fork, fork: Fork, tmp_path: Path, kind: Kind) -> None:
    """`git merge` alone finishes where a fork has kept to what is its own, and main.py hasn't changed: nothing there will."""
    kind(fork)
    fork.commit("Our job")
    newer = changed(upstream, tmp_path / "newer")
    newer.git("checkout", "--quiet", "HEAD~1", "--", "main.py", "tests/test_job.py")
    newer.commit("These two stay")
    fork.git("pull", "--quiet", "--no-rebase", "--no-edit", str(newer.folder), "main")
    assert fork.git("status", "--porcelain") == ""
    assert (fork.folder / "requirements.txt").read_text().count("flask==3.1.2\n") == 1


@long
def test_an_upgrade_leaves_alone_what_was_renamed(upstream: Fork, fork: Fork, tmp_path: Path) -> None:
    """What the template changes in a file is not written into what a fork has made of it under another name."""
    fork.git("mv", "tests/test_job.py", "tests/test_export.py")
    fork.git("mv", "examples/long_job/job.py", "job.py")
    fork.git("mv", "docs", "documentation")
    fork.git("rm", "-rq", "examples", "terraform")
    fork.commit("Our names")
    newer = changed(upstream, tmp_path / "newer")
    newer.append("examples/long_job/job.py", "# newer")
    newer.write("terraform/new.tf", "# newer\n")
    newer.commit("More")
    fork.git("remote", "set-url", "upstream", str(newer.folder))
    own = ["tests/test_export.py", "job.py", "documentation/operations.md"]
    before = [(fork.folder / path).read_text() for path in own]

    fork.succeeds("make", "upgrade")

    assert [(fork.folder / path).read_text() for path in own] == before
    assert [path for path in ("docs", "examples", "terraform", "tests/test_job.py") if (fork.folder / path).exists()] == []


@long
def test_tags_of_a_fork_are_not_the_templates(upstream: Fork, fork: Fork, tmp_path: Path) -> None:
    """A version is the template's tag, also where the fork has one of that name."""
    newer = changed(upstream, tmp_path / "newer")
    newer.git("tag", "v1.1.0")
    newer.append("dedup/__init__.py", "# beyond")
    newer.commit("Beyond")
    fork.git("tag", "v1.1.0")
    fork.git("remote", "set-url", "upstream", str(newer.folder))
    fork.succeeds("make", "upgrade", "VERSION=v1.1.0")
    assert (fork.folder / "dedup/__init__.py").read_text().endswith("# newer\n")


@long
def test_a_shallow_clone_is_told_how_to_get_its_history(upstream: Fork, tmp_path: Path) -> None:
    """A clone without its history is told how to get it, and not that it has none."""
    upstream.git("clone", "--quiet", "--depth=1", "--origin=upstream", f"file://{upstream.folder}", str(tmp_path / "shallow"))
    shallow = Fork(tmp_path / "shallow")
    shallow.lend_packages()
    assert "git fetch --unshallow" in shallow.run("make", "upgrade").stderr


@long
def test_an_upgrade_that_cannot_be_merged_is_told(upstream: Fork, fork: Fork, tmp_path: Path) -> None:
    """Where a fork has changed what is the template's, `make upgrade` changes nothing, and says which file and what to do."""
    fork.replace("requirements.txt", "flask==3.1.3", "flask==3.1.1")
    fork.commit("Ours is older")
    fork.git("remote", "set-url", "upstream", str(changed(upstream, tmp_path / "newer").folder))
    head = fork.git("rev-parse", "HEAD")

    done = fork.run("make", "upgrade")

    assert done.returncode != 0
    assert "Not upgraded: git can't merge these files." in done.stderr
    assert "\n  requirements.txt\n" in done.stderr
    assert (fork.git("rev-parse", "HEAD"), fork.git("status", "--porcelain")) == (head, "")


REFUSED = {
    "no remote": (("git", "remote", "remove", "upstream"), "git remote add upstream URL"),
    "not committed": (("sh", "-c", "echo >> main.py"), "Commit them first"),
    "no such version": (("git", "remote", "rename", "upstream", "there"), "git remote add upstream URL"),
}


@long
@pytest.mark.parametrize("why", REFUSED)
def test_an_upgrade_that_cannot_begin_is_told(fork: Fork, why: str) -> None:
    """What `make upgrade` needs and doesn't have is said, with what to do; nothing is changed."""
    command, told = REFUSED[why]
    fork.succeeds(*command)
    done = fork.run("make", "upgrade")
    assert done.returncode != 0
    assert told in done.stderr


@long
def test_a_fork_without_history_is_told_how_to_get_it(upstream: Fork, fork: Fork) -> None:
    """A copy that has lost the template's history, as GitHub's "Use this template" makes one, is told how to get it back."""
    fork.git("checkout", "--quiet", "--orphan", "fresh")
    fork.commit("A copy")
    done = fork.run("make", "upgrade")
    assert "git merge --allow-unrelated-histories --strategy=ours" in done.stderr
    fork.git("merge", "--quiet", "--allow-unrelated-histories", "--strategy=ours", "--no-edit", "upstream/main")
    assert fork.succeeds("make", "upgrade") == "Nothing is newer than what is here.\n"


@long
def test_an_upgrade_with_failing_tests_says_how_to_go_back(upstream: Fork, fork: Fork, tmp_path: Path) -> None:
    """Where the fork's tests fail after the merge, it stands, and the way back is said."""
    fork.append(
        "tests/test_job.py",
        "\n\ndef test_old():\n    import dedup, inspect\n    assert '# newer' not in inspect.getsource(dedup)",
    )
    fork.commit("Our job")
    before = fork.git("rev-parse", "HEAD")
    fork.git("remote", "set-url", "upstream", str(changed(upstream, tmp_path / "newer").folder))
    done: subprocess.CompletedProcess[str] = fork.run("make", "upgrade")
    assert done.returncode != 0
    assert "git reset --hard ORIG_HEAD" in done.stderr
    fork.git("reset", "--quiet", "--hard", "ORIG_HEAD")
    assert fork.git("rev-parse", "HEAD") == before
