"""For tests that measure time on a machine that does other work too."""
import os
import time


def run_before_others():
    """This process and those that it starts, where the user may."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except OSError:
        pass


def share_of_a_core(seconds=0.2):
    """What a process gets that wants a whole core; the least of a few tries."""
    def once():
        end, used = time.perf_counter() + seconds, time.process_time()
        while time.perf_counter() < end:
            pass
        return (time.process_time() - used) / seconds
    return min(once() for _ in range(5))
