"""Whether a Python has the whole PyTorch: it imports it. LibTorch alone, which a build needs, lies in the same folders
(`scripts/dependencies` unpacks the wheel without what it depends on), so that no file's presence tells."""
import subprocess
import sys


def skip(python, why):
    """Ends a test that cannot be made, with 77."""
    print(f"skipped: no whole PyTorch in {python} ({why}); scripts/dependencies --full installs it", flush=True)
    sys.exit(77)


def need_here():
    """The Python that runs this has it, or the test is skipped."""
    try:
        import torch.distributed.fsdp  # noqa: F401
    except (ImportError, OSError, ValueError) as missing:
        skip(sys.executable, missing)


def why_not(python):
    """None where that Python has it, else what it said."""
    try:
        done = subprocess.run([python, "-W", "ignore", "-c", "import torch.distributed.fsdp"], capture_output=True, text=True)
    except OSError as missing:
        return str(missing)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
