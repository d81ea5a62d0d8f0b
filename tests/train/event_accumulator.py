"""Prints what TensorBoard's own reader finds in a folder, as JSON: {tag: [[step, value], ...]}. For tests."""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})  # 0: keeps all of them
events.Reload()
print(json.dumps({tag: [[event.step, event.value] for event in events.Scalars(tag)]
                  for tag in events.Tags()["scalars"]}))
