"""A process that answers questions by measuring: one JSON object per line on its stdin, one on its stdout.

It waits idle between questions, so that others can be measured alternately with it.
"""
import json
import pathlib
import select
import subprocess
import tempfile

from comparison import machine


class WorkerError(RuntimeError):
    """A question without an answer; the message gives the reason."""


class Worker:
    def __init__(self, command, threads, library_threads):
        """Runs the command on `threads` cores; threaded libraries in it use `library_threads`."""
        self._name = pathlib.Path(command[-1]).name
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(machine.pinned(command, threads), env=machine.environment(library_threads),
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True)

    def ask(self, timeout=600, **question):
        """Return the answer. Raises WorkerError if there is none."""
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise WorkerError(self._last_words()) from None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            self.close()
            raise WorkerError(f"no answer within {timeout} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._log):
            try:
                file.close()
            except BrokenPipeError:  # a question that it never read
                pass

    def _last_words(self):
        self._process.wait(timeout=10)
        self._log.seek(0)
        lines = self._log.read().strip().splitlines() or ["it said nothing"]
        return f"{self._name} ended with {self._process.returncode}: {lines[-1]}"
