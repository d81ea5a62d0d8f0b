"""The baselines' side of the driver's protocol: one question (JSON) per line on stdin, one answer per line on
stdout."""
import json
import sys
import time


def serve(answer):
    """Answers every question with answer(question), a dict; an exception becomes {"error": its text}."""
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # the driver receives any error, and continues
            reply = {"error": f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]}
        print(json.dumps(reply), flush=True)


def timed(budget, flops, body):
    """Return the time of the fastest of as many calls as fit in `budget` seconds, at least three."""
    begin, best, calls = time.perf_counter(), float("inf"), 0
    while calls < 3 or time.perf_counter() - begin < budget:
        start = time.perf_counter()
        body()
        best = min(best, time.perf_counter() - start)
        calls += 1
    return {"seconds": best, "calls": calls, "flops": flops}
