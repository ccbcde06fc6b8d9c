"""A driver of this folder: a process that answers a line with a line."""
import json
import subprocess
import threading


class DriverEnded(Exception):
    """It gave no answer, or none in time."""


class Driver:
    """Started when it is asked, and again when it has ended."""

    def __init__(self, *command, answer_s=300, end_s=60):
        self.command, self.answer_s, self.end_s, self.process = command, answer_s, end_s, None

    def start(self):
        self.close()
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, document):
        if self.process is None or self.process.poll() is not None:
            self.start()
        limit = threading.Timer(self.answer_s, self.process.kill)
        limit.start()
        try:
            self.process.stdin.write(json.dumps(document) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            limit.cancel()
        if not line:
            raise DriverEnded(f"the driver ended with {self.close()}")
        return json.loads(line)

    def close(self):
        """-> its exit code; None where there is none."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        try:
            process.communicate(timeout=self.end_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return process.returncode
