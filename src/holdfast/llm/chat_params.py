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

from holdfast.llm.base import readable

if TYPE_CHECKING:
    from holdfast.llm.base import Prompt


class Form(StrEnum):
    """How an answer of a given shape is asked for, from the strictest on."""

    SCHEMA = "json_schema"  # the endpoint promises the shape
    OBJECT = "json_object"  # the endpoint promises JSON, the prompt tells its shape
    WORDS = "text"  # the prompt alone asks


SIMPLER = {Form.SCHEMA: Form.OBJECT, Form.OBJECT: Form.WORDS}
OLD_LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way to write a chat request; the first is the fullest."""

    form: Form = Form.SCHEMA
    limit: str = OLD_LIMIT
    temperature: bool = True
    usage: bool = True  # streams report at their end what they cost

    def request(self, prompt: Prompt, *, stream: bool = False) -> dict[str, Any]:
        """Write a prompt as the arguments of a chat request."""
        written: dict[str, Any] = {"messages": self.messages(prompt), self.limit: prompt.max_tokens, "stream": stream}
        if stream and self.usage:
            written["stream_options"] = {"include_usage": True}
        if self.temperature:
            written["temperature"] = 0
        if prompt.schema is not None and self.form is not Form.WORDS:
            written["response_format"] = self._format(prompt)
        return written

    def without(self, param: str | None, prompt: Prompt, *, stream: bool = False) -> Dialect | None:
        """Return the next way to try after a rejection that named this parameter, if any; None when none is left."""
        if param == OLD_LIMIT and self.limit == OLD_LIMIT:
            return replace(self, limit=NEW_LIMIT)
        if param == "temperature" and self.temperature:
            return replace(self, temperature=False)
        if stream and self.usage:
            return replace(self, usage=False)
        if prompt.schema is not None and self.form in SIMPLER:
            return replace(self, form=SIMPLER[self.form])
        return None

    def messages(self, prompt: Prompt) -> list[dict[str, str]]:
        """Write what is said to the model."""
        system = prompt.system
        if prompt.schema is not None and self.form is not Form.SCHEMA:
            shape = json.dumps(prompt.schema, ensure_ascii=False)
            system = f"{system}\n\nAnswer with JSON alone, of this JSON schema: {shape}".strip()
        said = [("system", system)] if system else []
        return [{"role": role, "content": readable(text)} for role, text in [*said, ("user", prompt.text)]]

    def _format(self, prompt: Prompt) -> dict[str, Any]:
        if self.form is Form.OBJECT:
            return {"type": "json_object"}
        return {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": prompt.schema, "strict": True},
        }
