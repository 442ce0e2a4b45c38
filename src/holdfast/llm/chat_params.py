"""What an endpoint understands of a chat request, learnt from what it rejects.

Endpoints that call themselves compatible differ: some know no JSON schema, some no JSON at all, and OpenAI's newer
models renamed the limit of tokens and fixed the temperature. Asking which one speaks would cost settings that nobody
can fill in, so the fullest request is tried first and what is rejected is left out. A rejected request costs nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdfast.llm.base import replace_surrogates

if TYPE_CHECKING:
    from holdfast.llm.base import Prompt


class ResponseFormat(StrEnum):
    """How an answer of a given shape is asked for, from the strictest on."""

    SCHEMA = "json_schema"  # the endpoint promises the shape
    OBJECT = "json_object"  # the endpoint promises JSON, the prompt tells its shape
    WORDS = "text"  # the prompt alone asks


NEXT_SIMPLER_FORMAT = {ResponseFormat.SCHEMA: ResponseFormat.OBJECT, ResponseFormat.OBJECT: ResponseFormat.WORDS}
OLD_LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatParams:
    """One way to write a chat request; the first is the fullest."""

    response_format: ResponseFormat = ResponseFormat.SCHEMA
    limit: str = OLD_LIMIT
    temperature: bool = True
    usage: bool = True  # streams report at their end what they cost

    def build_request(self, prompt: Prompt, *, stream: bool = False) -> dict[str, Any]:
        """Write a prompt as the arguments of a chat request."""
        written: dict[str, Any] = {"messages": self.messages(prompt), self.limit: prompt.max_tokens, "stream": stream}
        if stream and self.usage:
            written["stream_options"] = {"include_usage": True}
        if self.temperature:
            written["temperature"] = 0
        if prompt.schema is not None and self.response_format is not ResponseFormat.WORDS:
            written["response_format"] = self._format(prompt)
        return written

    def simplify_after_rejection(self, param: str | None, prompt: Prompt, *, stream: bool = False) -> ChatParams | None:
        """Return the next way to try after a rejection that named this parameter, if any; None when none is left."""
        if param == OLD_LIMIT and self.limit == OLD_LIMIT:
            return replace(self, limit=NEW_LIMIT)
        if param == "temperature" and self.temperature:
            return replace(self, temperature=False)
        if stream and self.usage:
            return replace(self, usage=False)
        if prompt.schema is not None and self.response_format in NEXT_SIMPLER_FORMAT:
            return replace(self, response_format=NEXT_SIMPLER_FORMAT[self.response_format])
        return None

    def messages(self, prompt: Prompt) -> list[dict[str, str]]:
        """Write what is said to the model."""
        system = prompt.system
        if prompt.schema is not None and self.response_format is not ResponseFormat.SCHEMA:
            shape = json.dumps(prompt.schema, ensure_ascii=False)
            system = f"{system}\n\nAnswer with JSON alone, of this JSON schema: {shape}".strip()
        said = [("system", system)] if system else []
        return [{"role": role, "content": replace_surrogates(text)} for role, text in [*said, ("user", prompt.text)]]

    def _format(self, prompt: Prompt) -> dict[str, Any]:
        if self.response_format is ResponseFormat.OBJECT:
            return {"type": "json_object"}
        return {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": prompt.schema, "strict": True},
        }
