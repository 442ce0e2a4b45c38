"""A client that changes the files of a folder and syncs the folder into a base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.clients import Client, Request
from tests.chaos.texts import text_of

if TYPE_CHECKING:
    from tests.chaos.calls import Answer
    from tests.chaos.schedule import Step


class FolderClient(Client):
    """Only this client changes the folder, between two of its requests."""

    container: int | None = None
    files: dict[str, int] | None = None

    def _write_file(self, step: Step) -> None:
        self._record_file(step, "write_file")
        path = self._system.tree / f"{step.key}.md"
        path.with_suffix(".new").write_text(text_of(step.key, step.version))
        path.with_suffix(".new").replace(path)
        self.files = (self.files or {}) | {step.key: step.version}

    def _remove_file(self, step: Step) -> None:
        self._record_file(step, "remove_file")
        (self._system.tree / f"{step.key}.md").unlink(missing_ok=True)
        self.files = {key: version for key, version in (self.files or {}).items() if key != step.key}

    def _record_file(self, step: Step, name: str) -> None:
        number = self.history.invoke(self.name, name, base=step.base, key=step.key, version=step.version)
        self.history.fail(number)  # no request to the product, so nothing is acknowledged

    def _sync(self, step: Step) -> None:
        self.sync(step.base)

    def sync(self, base: str) -> bool:
        """Request a sync of the folder; return whether it was acknowledged."""
        number = self.history.invoke(self.name, "sync", base=base, files=self.files or {})
        answer = self._request_sync(base)
        if answer.ok:
            reply = answer.content.get("replies", [answer.content])[0]
            self.container = reply["document"] or self.container
            self.history.ok(number, document=self.container, job=reply["job"], **answer.told)
            return True
        if answer.status == 404 or answer.code == "being_deleted":
            self.container = None
        if answer.outcome == "unknown":
            self.history.unknown(number, **answer.told)
        else:
            self.history.fail(number, **answer.told)
        return False

    def _request_sync(self, base: str) -> Answer:
        if self.container is None:
            source = {"kind": "directory", "source": str(self._system.tree)}
            answer = self.caller.send("POST", f"/bases/{base}/documents/sources", json=source)
            if answer.status == 409 and answer.content.get("document"):
                self.container = answer.content["document"]
            return answer
        return self.caller.send("POST", f"/bases/{base}/documents/{self.container}:refresh")

    def _delete_folder(self, step: Step) -> None:
        if self.container is None:
            return
        arguments = {"base": step.base, "document": self.container}
        path = f"/bases/{step.base}/documents/{self.container}:delete"
        self._write(step, arguments, Request("POST", path, self._accepted(step)))
        self.container = None
