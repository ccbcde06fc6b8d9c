"""What Linux tells of a process."""
import os


def stat_of(pid):
    """Fields of /proc/PID/stat from the state on; None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()
    except OSError:
        return None


def processor_s(pid):
    """Processor time that it has used, user and system; 0 where there is none."""
    fields = stat_of(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def lives(pid):
    """It is there and has not ended: a zombie has."""
    fields = stat_of(pid)
    return bool(fields) and pid > 1 and fields[0] not in "ZX"
