"""The parameters that an endpoint accepts in a chat request, learned from its rejections.

Endpoints that claim compatibility differ: some support no JSON schema, some no JSON mode, and newer models of OpenAI
renamed the token limit and fixed the temperature. Instead of settings that users could hardly fill in, the request with
all parameters is tried first, and rejected parameters are dropped. A rejected request costs nothing.
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
    """How structured answers are requested, the strictest first."""

    SCHEMA = "json_schema"  # the endpoint enforces the schema
    OBJECT = "json_object"  # the endpoint enforces JSON; the schema is in the prompt
    WORDS = "text"  # only the prompt requests JSON


NEXT_SIMPLER_FORMAT = {ResponseFormat.SCHEMA: ResponseFormat.OBJECT, ResponseFormat.OBJECT: ResponseFormat.WORDS}
OLD_LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatParams:
    """The parameters to send; the defaults are all of them."""

    response_format: ResponseFormat = ResponseFormat.SCHEMA
    limit: str = OLD_LIMIT
    temperature: bool = True
    usage: bool = True  # request the token usage at the end of a stream

    def build_request(self, prompt: Prompt, *, stream: bool = False) -> dict[str, Any]:
        """Return the arguments of a chat request for a prompt."""
        request: dict[str, Any] = {"messages": self.messages(prompt), self.limit: prompt.max_tokens, "stream": stream}
        if stream and self.usage:
            request["stream_options"] = {"include_usage": True}
        if self.temperature:
            request["temperature"] = 0
        if prompt.schema is not None and self.response_format is not ResponseFormat.WORDS:
            request["response_format"] = self._format(prompt)
        return request

    def simplify_after_rejection(self, param: str | None, prompt: Prompt, *, stream: bool = False) -> ChatParams | None:
        """Return simpler parameters after a rejection, which may have named a parameter; None if none are left."""
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
        system = prompt.system
        if prompt.schema is not None and self.response_format is not ResponseFormat.SCHEMA:
            shape = json.dumps(prompt.schema, ensure_ascii=False)
            system = f"{system}\n\nAnswer with JSON alone, of this JSON schema: {shape}".strip()
        messages = [("system", system)] if system else []
        messages.append(("user", prompt.text))
        return [{"role": role, "content": replace_surrogates(text)} for role, text in messages]

    def _format(self, prompt: Prompt) -> dict[str, Any]:
        if self.response_format is ResponseFormat.OBJECT:
            return {"type": "json_object"}
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": prompt.schema, "strict": True}}
