"""Dockerfiles as steps for a clone."""

from __future__ import annotations

import pytest
from fractal.adapters._dockerfile import Copy, Refused, Run, read


def test_steps_come_in_order_with_their_place_and_variables() -> None:
    image = read(
        "# syntax=docker/dockerfile:1\n"
        "FROM python:3.13-slim AS only\n"
        "ARG NAME=ann\n"
        "ENV GREETING='hello there' WHO=${NAME:-bob}\n"
        "ENV OLD two words $WHO\n"
        "\n"
        "WORKDIR /app\n"
        "workdir sub\n"
        "RUN apt-get update && \\\n"
        "    # in between\n"
        "    echo \"$WHO\"\n"
        "USER dev:dev\n"
        'RUN ["printf", "%s", "$WHO"]\n'
        "COPY --chown=dev --chmod=755 a.txt b.txt dest/\n"
        'COPY ["one file", "/there"]\n'
        "ADD . .\n"
        'CMD ["bash"]\n'
        "EXPOSE 80\n"
    )
    env = {"GREETING": "hello there", "WHO": "ann", "OLD": "two words ann"}
    run, made, exact = [step for step in image.steps if isinstance(step, Run)][2], image.steps[0], image.steps[3]
    assert made == Run(("mkdir", "-p", "--", "/app"), "/", {}, None)
    assert isinstance(run, Run) and run.cwd == "/app/sub" and run.user is None
    assert run.words[:2] == ("sh", "-c") and 'echo "$WHO"' in run.words[2]
    assert "#" not in run.words[2] and run.env == {"NAME": "ann", **env}
    assert exact == Run(("printf", "%s", "$WHO"), "/app/sub", {"NAME": "ann", **env}, "dev")
    assert image.steps[4:] == [
        Copy(("a.txt", "b.txt"), "/app/sub/dest/", "dev", "755"),
        Copy(("one file",), "/there"),
        Copy((".",), "/app/sub/."),
    ]
    assert (image.workdir, image.user, image.env) == ("/app/sub", "dev", env)


@pytest.mark.parametrize(
    "text,why",
    [
        ("FROM a\nRUN x\nFROM b", "line 3: FROM .* second stage"),
        ("FROM a\nCOPY --from=b /x /y", "line 2: COPY .* --from"),
        ("FROM a\nCOPY ../secret /y", "COPY .* lies outside"),
        ("FROM a\nCOPY only", "COPY .* where to"),
        ("FROM a\nADD https://example.org/x.tar.gz /y", "ADD .* addresses"),
        ("FROM a\nADD x.tar /y", "ADD .* archives"),
        ("FROM a\nRUN --mount=type=cache x", "RUN .* options"),
        ("FROM a\nRUN <<EOF\nx\nEOF", "RUN .* here-documents"),
        ("FROM a\nONBUILD RUN x", "ONBUILD .* not known"),
        ("FROM a\nENV A='x", "ENV"),
        ("FROM a\nRUN x \\", "does not end"),
    ],
)
def test_what_has_no_meaning_in_a_clone_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        read(text)


@pytest.mark.parametrize(
    "value,expect",
    [("$A", "x"), ("${A}b", "xb"), ("${B:-d}", "d"), ("${A:-d}", "x"), ("${A:+y}", "y"),
     ("${B:+y}", ""), (r"\$A", "$A"), ("$B", ""), ("a$", "a$")],
)
def test_variables_are_replaced(value: str, expect: str) -> None:
    assert read(f"FROM a\nENV A=x\nUSER {value}").user == expect
