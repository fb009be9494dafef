"""Harbor's trials in sandboxes: whole ones by its own command, with the agents
that need no model, and the environment by itself."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fractal import Sandbox, sandboxes
from fractal.adapters._dockerfile import Refused
from fractal.adapters.harbor import FractalEnvironment
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/frameworks/harbor.md"
HARBOR = Path(sys.executable).parent / "harbor"
IMPORT_PATH = "fractal.adapters.harbor:FractalEnvironment"
TRIALS_SECONDS_MAX = 300

# Tasks work in directories of the system, which a clone of a user's cannot make.
pytestmark = [
    pytest.mark.usefixtures("home", "nothing_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="skipped: Harbor's tasks need sandboxes of root"),
]

TASK = {
    "task.toml": """
        version = "1.0"
        [environment]
        build_timeout_sec = 120.0
        cpus = 1
        memory_mb = 1024
        storage_mb = 512
        [environment.env]
        TASK_MARK = "of the task"
    """,
    "instruction.md": "Write the words in words.txt in capitals to hello.txt.\n",
    "environment/Dockerfile": """
        FROM ubuntu:24.04
        ENV GREETING="hello there"
        WORKDIR /app
        COPY words.txt tools ./
        RUN useless="$GREETING"; echo "$useless in $PWD" > made.txt
    """,
    "environment/words.txt": "hello world\n",
    "environment/tools/shout": "#!/bin/sh\ntr a-z A-Z\n",
    "solution/solve.sh": "#!/bin/bash\n./shout < words.txt > hello.txt\n",
    "tests/test.sh": (
        "#!/bin/bash\n"
        'grep -q "^HELLO WORLD$" /app/hello.txt && grep -q "hello there in /app" /app/made.txt\n'
        "[ $? -eq 0 ] && reward=1 || reward=0\n"
        "echo $reward > /logs/verifier/reward.txt\n"
    ),
}


@pytest.fixture
def nothing_left(home: pathlib.Path) -> Any:
    """No sandbox outlives its test."""
    yield
    assert sandboxes() == []


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "shout-it"
    for name, text in TASK.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        plain = re.sub(r"^        ", "", text, flags=re.M)
        file.write_text(plain)
        if plain.startswith("#!"):
            file.chmod(0o755)
    return path


# Whole trials.


def trials(task: Path, *words: str) -> list[dict[str, Any]]:
    """The results of a job that Harbor's own command runs."""
    out = task.parent / "jobs"
    environment = {**os.environ, "HOME": str(task.parent), "HARBOR_TELEMETRY": "0",
                   "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [HARBOR, "run", "-p", task, "--env", IMPORT_PATH, "-o", out, *words],
        env=environment, capture_output=True, text=True, timeout=TRIALS_SECONDS_MAX, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(found.read_text()) for found in sorted(out.glob("*/*/result.json"))]


def rewards(results: list[dict[str, Any]]) -> list[float]:
    for result in results:
        assert result["exception_info"] is None, result["exception_info"]
    return [result["verifier_result"]["rewards"]["reward"] for result in results]


def test_the_oracle_solves_a_task_and_who_does_nothing_does_not(task: Path) -> None:
    assert rewards(trials(task, "--agent", "oracle")) == [1.0]
    for job in (task.parent / "jobs").iterdir():
        job.rename(task.parent / "done")
    assert rewards(trials(task, "--agent", "nop")) == [0.0]


def test_several_trials_at_once_do_not_meet(task: Path) -> None:
    assert rewards(trials(task, "--agent", "oracle", "-k", "4", "-n", "4")) == [1.0] * 4


def test_a_task_whose_build_fails_says_so(task: Path) -> None:
    with (task / "environment/Dockerfile").open("a") as dockerfile:
        dockerfile.write("RUN echo trouble >&2; exit 3\n")
    [result] = trials(task, "--agent", "oracle")
    assert "trouble" in result["exception_info"]["exception_message"]


# The environment by itself.


def made(task: Path, **how: Any) -> FractalEnvironment:
    config = how.pop("config", EnvironmentConfig(memory_mb=1024))
    trial = TrialPaths(trial_dir=task.parent / "trials" / "one")
    trial.trial_dir.mkdir(parents=True, exist_ok=True)
    (trial.trial_dir / "secret").write_text("x")
    return FractalEnvironment(
        environment_dir=task / "environment",
        environment_name=task.name,
        session_id="Shout-It__abc__env",
        trial_paths=trial,
        task_env_config=config,
        **how,
    )


@asynccontextmanager
async def started(task: Path, **how: Any) -> AsyncIterator[FractalEnvironment]:
    env = made(task, **how)
    await env.start(force_build=False)
    try:
        yield env
    finally:
        await env.stop(delete=True)


def with_environment(
    task: Path, work: Callable[[FractalEnvironment], Awaitable[None]], **how: Any
) -> None:
    async def whole() -> None:
        async with started(task, **how) as env:
            await work(env)

    asyncio.run(whole())


def test_commands_have_a_place_variables_and_a_status(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        done = await env.exec("pwd; echo $GREETING, $KEPT, $MINE; echo err >&2; exit 3", env={"MINE": "m"})
        assert done.stdout == "/app\nhello there, k, m\n"
        assert (done.stderr, done.return_code) == ("err\n", 3)
        assert (await env.exec("pwd", cwd="/tmp")).stdout == "/tmp\n"
        assert (await env.exec("[[ a == a ]] && id -u")).stdout == "0\n"
        with env.scoped_exec_env({"MINE": "scoped"}):
            assert (await env.exec("echo $MINE", env={"MINE": "m"})).stdout == "scoped\n"
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            await env.exec("sleep 600", timeout_sec=1)
        assert await env.is_file("/app/words.txt") and await env.is_dir("/app")
        assert not await env.is_file("/app") and not await env.is_dir("/no/such")

    with_environment(task, work, persistent_env={"KEPT": "k"})


def test_what_a_command_leaves_running_goes_on(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        serve = "nohup python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &"
        assert (await env.exec(f"{serve} echo $!")).return_code == 0
        ask = "for n in $(seq 100); do curl -sf 127.0.0.1:8123/words.txt && break; sleep 0.1; done"
        assert (await env.exec(ask)).stdout == "hello world\n"
        await env.exec("tmux new-session -d -s work; tmux send-keys -t work 'echo $((6 * 7))' Enter")
        show = "for n in $(seq 100); do tmux capture-pane -p -t work | grep -x 42 && break; sleep 0.1; done"
        assert (await env.exec(show)).stdout == "42\n"
        with pytest.raises(RuntimeError, match="timed out"):
            await env.exec("sleep 600", timeout_sec=1)
        assert (await env.exec(ask)).stdout == "hello world\n", "others go on"
        assert "http.server" in (await env.exec("ps ax")).stdout
        assert "sleep 600" not in (await env.exec("ps ax | grep -v grep")).stdout

    with_environment(task, work)


def test_a_command_does_not_wait_for_what_keeps_its_output(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        done = await asyncio.wait_for(env.exec("sleep 600 & echo begun"), 60)
        assert done.stdout == "begun\n"

    with_environment(task, work)


def test_bytes_and_much_output_arrive(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        assert (await env.exec(r"printf 'a\377\317\200'")).stdout == "a\ufffdπ"
        done = await env.exec("yes 0123456789 | head -c 3000000; echo end >&2")
        assert len(done.stdout) == 3_000_000 and done.stderr == "end\n"
        done = await env.exec("yes 0123456789 | head -c 30000000")
        assert len(done.stdout) == 4 << 20 and "more output than is kept" in done.stderr
        asked = [env.exec(f"sleep 0.{n}; echo {n}; head -c 200000 /dev/zero | tr '\\0' {n}") for n in range(8)]
        for number, done in enumerate(await asyncio.gather(*asked)):
            assert done.stdout == f"{number}\n" + str(number) * 200_000

    with_environment(task, work)


def test_who_ends_everything_inside_ends_it_for_now(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        waits = asyncio.create_task(env.exec("touch begun; sleep 600"))
        while (await env.exec("ls begun")).return_code:
            await asyncio.sleep(0.05)
        done = await env.exec("kill -9 -1")
        assert done.return_code == 137 and (await waits).return_code == 137
        assert (await env.exec("cat words.txt")).stdout == "hello world\n"
        # Nor does nonsense in its place hold anybody up.
        forged = "for fd in /proc/[0-9]*/fd/1; do printf 'x\\n[]\\n{\"id\":1}\\n' > $fd; done 2>/dev/null"
        await env.exec(forged)
        assert (await env.exec("echo on")).stdout == "on\n"

    with_environment(task, work)


def test_a_sandbox_that_is_dropped_under_it_is_an_error(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        running = asyncio.create_task(env.exec("touch begun; sleep 600"))
        while (await env.exec("ls begun")).return_code:
            await asyncio.sleep(0.05)
        await env.box.drop(force=True)
        done = await running
        assert done.return_code == 137 and "all commands were ended" in done.stderr
        with pytest.raises(FileNotFoundError, match="no sandbox"):
            await env.exec("true")

    with_environment(task, work)


def test_users_are_who_they_are(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        assert (await env.exec("id -un", user="nobody")).stdout == "nobody\n"
        assert (await env.exec("id -u", user=65534)).stdout == "65534\n"
        with env.with_default_user("nobody"):
            assert (await env.exec("id -un")).stdout == "nobody\n"
            assert (await env.exec("id -un", user="root")).stdout == "root\n"
        assert (await env.exec("true", user="no-such-user")).return_code != 0

    with_environment(task, work)


def test_output_is_heard_while_it_is_written(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        heard: list[tuple[str, str]] = []

        async def hear(text: str, stream: Any) -> None:
            heard.append((stream, text))

        with env.scoped_output_callback(hear):
            done = await env.exec("echo one; echo two >&2")
        assert sorted(heard) == [("stderr", "two\n"), ("stdout", "one\n")]
        assert (done.stdout, done.stderr) == ("one\n", "two\n")

    with_environment(task, work)


def test_what_would_give_the_answers_away_is_not_in_a_clone(task: Path, tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("x")

    async def work(env: FractalEnvironment) -> None:
        places = [task, task / "solution/solve.sh", env.trial_paths.trial_dir, tmp_path / "beside"]
        for place in places:
            assert place.exists()
            assert (await env.exec(f"ls -d {place}")).return_code != 0
        (task / "solution/later").write_text("x")
        assert (await env.exec(f"ls {task}/solution")).return_code != 0

    with_environment(task, work, hide=[str(tmp_path / "beside")])
    assert (task / "solution/solve.sh").exists(), "it is gone in the clone alone"


def test_files_and_directories_go_in_and_come_out(task: Path, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    (source / "sub").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o750)
    (source / "sub/raw").write_bytes(bytes(range(256)) * 4096)
    (source / "link").symlink_to("sub/raw")

    async def work(env: FractalEnvironment) -> None:
        await env.upload_dir(source, "/data/in put")
        assert (await env.exec("'/data/in put/run.sh'; readlink '/data/in put/link'")).stdout == "ran\nsub/raw\n"
        await env.upload_file(source / "run.sh", "/bin-of-mine/run")
        assert (await env.exec("/bin-of-mine/run")).stdout == "ran\n"
        await env.exec("mkfifo '/data/in put/fifo'; echo new > '/data/in put/new'")
        await env.download_dir("/data/in put", back)
        await env.download_file("/data/in put/sub/raw", back / "deep" / "raw")
        await env.download_file("/etc/hostname", back / "hostname")
        with pytest.raises(FileNotFoundError):
            await env.download_file("/no/such", back / "none")
        with pytest.raises(RuntimeError):
            await env.download_dir("/no/such", back / "none")
        await env.download_dir_with_exclusions(
            source_dir="/data/in put", target_dir=tmp_path / "some", exclude=["sub"]
        )
        await env.download_dir_filtered(
            source_dir="/data/in put", target_dir=tmp_path / "few", include=["*.sh"]
        )
        assert (await env.exec("ls -A /tmp | grep -e 'fractal-harbor.*tar' -e hb-transfer")).stdout == ""

    with_environment(task, work)
    assert (back / "deep/raw").read_bytes() == (back / "sub/raw").read_bytes() == (source / "sub/raw").read_bytes()
    assert stat.S_IMODE((back / "run.sh").stat().st_mode) == 0o750
    assert os.readlink(back / "link") == "sub/raw" and (back / "new").read_text() == "new\n"
    assert not (back / "fifo").exists()
    assert (back / "hostname").read_text() == Path("/etc/hostname").read_text()
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == ["link", "new", "run.sh"]
    assert [path.name for path in (tmp_path / "few").iterdir()] == ["run.sh"]


ASK = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 3128), 2); print('a proxy')\""


def policy(mode: NetworkMode, *hosts: str) -> NetworkPolicy:
    return NetworkPolicy(network_mode=mode, allowed_hosts=list(hosts))


def test_the_network_is_what_the_task_says_and_changes_when_it_says_so(task: Path) -> None:
    nothing = policy(NetworkMode.NO_NETWORK)
    some = policy(NetworkMode.ALLOWLIST, "example.org", "*.example.com")

    async def work(env: FractalEnvironment) -> None:
        assert (await env.exec("echo ${HTTP_PROXY:-none}")).stdout == "none\n"
        assert (await env.exec(ASK)).return_code != 0
        await env.set_network_policy(some)
        assert (await env.exec(f"echo ${{HTTP_PROXY:-none}}; {ASK}")).stdout == "http://127.0.0.1:3128\na proxy\n"
        refused = await env.exec("curl -s -o /dev/null -w '%{http_code}' http://example.net/")
        assert refused.stdout == "403"
        await env.set_network_policy(nothing)
        assert (await env.exec(ASK)).return_code != 0

    with_environment(task, work, network_policy=nothing, phase_network_policies=[some])


def test_addresses_in_a_list_are_refused_before_the_start(task: Path) -> None:
    with pytest.raises(ValueError, match="IPv4"):
        made(task, network_policy=policy(NetworkMode.ALLOWLIST, "10.0.0.1"))


def test_limits_hold(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        done = await env.exec("python3 -c \"x = b'x' * (600 << 20); print(len(x))\"")
        assert done.return_code != 0 and done.stdout == ""
        assert (await env.exec("echo on")).stdout == "on\n"

    with_environment(task, work, config=EnvironmentConfig(memory_mb=256))


def test_a_task_without_a_dockerfile_brings_its_files(task: Path) -> None:
    (task / "environment/Dockerfile").unlink()
    with pytest.raises(FileNotFoundError, match="how to make the environment"):
        made(task)

    async def work(env: FractalEnvironment) -> None:
        assert (await env.exec("cat words.txt; pwd")).stdout == "hello world\n/work\n"

    config = EnvironmentConfig(docker_image="ubuntu:24.04", workdir="/work")
    (task / "environment/words.txt").write_text("hello world\n")

    async def whole() -> None:
        env = made(task, config=config)
        await env.start(force_build=False)
        try:
            await work(env)
        finally:
            await env.stop(delete=True)

    asyncio.run(whole())


def test_several_services_are_refused(task: Path) -> None:
    (task / "environment/docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(ValueError, match="one sandbox"):
        made(task)


def test_a_dockerfile_that_cannot_be_carried_out_is_refused(task: Path) -> None:
    (task / "environment/Dockerfile").write_text("FROM a\nFROM b\n")
    with pytest.raises(Refused, match="line 2"):
        made(task)


def test_a_build_that_fails_or_takes_too_long_leaves_nothing(task: Path) -> None:
    for line, wrong in (("RUN exit 3", RuntimeError), ("COPY none /x", FileNotFoundError),
                        ("RUN sleep 600", TimeoutError)):
        (task / "environment/Dockerfile").write_text(f"FROM a\n{line}\n")
        env = made(task, config=EnvironmentConfig(build_timeout_sec=2))
        with pytest.raises(wrong):
            asyncio.run(env.start(force_build=True))
        assert sandboxes() == []


def test_an_environment_that_is_kept_is_looked_at_later(task: Path) -> None:
    async def whole() -> str:
        env = made(task)
        await env.start(force_build=False)
        await env.exec("echo kept > result.txt")
        name = env.box.name
        await env.stop(delete=False)
        await env.stop(delete=False)
        return name

    name = asyncio.run(whole())
    with Sandbox.open(name) as box:
        assert box.files.read("/app/result.txt") == "kept\n"
        anchor = box.directory
    os.rmdir(anchor)


def test_a_cancelled_command_is_ended(task: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        running = asyncio.create_task(env.exec("touch begun; sleep 3; touch late"))
        while (await env.exec("ls begun")).return_code:
            await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(3)
        assert (await env.exec("ls late")).return_code != 0

    with_environment(task, work)


def test_what_the_guide_shows_runs(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(task.parent)
    task.rename("task")
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        names: dict[str, Any] = {}
        exec(compile(block, str(GUIDE), "exec"), names)
        assert names["result"].verifier_result.rewards == {"reward": 1.0}
