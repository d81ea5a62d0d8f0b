"""Writes the numbers of a run's metrics.jsonl as TensorBoard events, also while the run goes on."""
# The package tensorboard writes the events. A run that resumes cuts lines and makes their steps again. The events then
# begin anew, so that each step is there once.
import argparse
import datetime
import json
import os
import sys
import time

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ImportError as error:
    print(f"ringtrain_tensorboard: needs the package {error.name}, which is not installed: pip install tensorboard",
          file=sys.stderr)
    sys.exit(2)


# Returns the event of a line; None for a line that is no metrics of a run.
def event_of(line):
    try:
        entry = json.loads(line)
        numbers = {f"train/{key}": value for key, value in entry.items() if key != "step" and entry["kind"] == "train"}
        for result in entry.get("results", []):
            for key in ("nll", "perplexity", "bits_per_byte"):
                numbers[f"evaluation/{key}/{result['context_length']}"] = result.get(key)
        moment = datetime.datetime.fromisoformat(entry["time"].replace("Z", "+00:00"))
        event = Event(step=entry["step"], wall_time=moment.timestamp())
        for tag, value in numbers.items():
            if type(value) in (int, float):
                event.summary.value.add(tag=tag, simple_value=value)
        return event
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


# Writes the events of a run to RUN/tensorboard. Returns when all is written; with follow, when lines that were read have
# changed.
def write_events(run, follow):
    folder, last, end = os.path.join(run, "tensorboard"), b"", 0
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name.startswith("events.out.tfevents."):
            os.remove(os.path.join(folder, name))
    writer = EventFileWriter(folder)
    while True:
        with open(os.path.join(run, "metrics.jsonl"), "rb") as file:
            file.seek(end - len(last))
            if file.read(len(last)) != last:
                return writer.close()
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the run is still writing it
                last, end = line, end + len(line)
                if event := event_of(line):
                    writer.add_event(event)
        writer.flush()
        if not follow:
            return writer.close()
        time.sleep(1)


def main():
    parser = argparse.ArgumentParser(prog="ringtrain_tensorboard", description=__doc__)
    parser.add_argument("run", help="the folder of a run; the events, which replace former ones, go to RUN/tensorboard")
    parser.add_argument("--follow", action="store_true", help="go on as the run does, until interrupted")
    given = parser.parse_args()
    try:
        write_events(given.run, given.follow)
        while given.follow:
            write_events(given.run, follow=True)
    except OSError as error:
        print(f"ringtrain_tensorboard: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
