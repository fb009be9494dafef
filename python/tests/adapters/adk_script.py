"""A model for google-adk that follows a script."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.models.base_llm import LlmCapabilities
from google.adk.runners import InMemoryRunner
from google.genai import types

Turn = tuple[str, dict[str, Any]] | str
"""A tool to call with its words, or something to say."""


class Script(BaseLlm):
    """Takes these turns, and then says that it is done."""

    model: str = "script"
    turns: list[Any]
    heard: list[dict[str, Any]]
    """What the tools that it called have answered."""
    read: list[str]
    """What it was shown last, for each of its turns."""

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities(output_schema_and_tools=False)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts or []
        answers = [part.function_response.response for part in last if part.function_response]
        self.heard += [dict(answer or {}) for answer in answers]
        self.read.append("".join(part.text or "" for part in last))
        turn = self.turns.pop(0) if self.turns else "done"
        if isinstance(turn, str):
            part = types.Part(text=turn)
        else:
            part = types.Part(function_call=types.FunctionCall(name=turn[0], args=turn[1]))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def script(*turns: Turn) -> Script:
    return Script(turns=list(turns), heard=[], read=[])


async def played(runner: InMemoryRunner) -> str:
    """What the agent says in the end."""
    events = await runner.run_debug("Do it.", quiet=True)
    return "".join(part.text or "" for part in events[-1].content.parts)
