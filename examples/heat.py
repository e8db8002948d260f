"""A simulation on the mesh, to be watched and steered. Start a broker with `veena broker run`, then run this."""

import sys
from contextlib import suppress

from veena import collab
from veena.services.application.heat import PARAMETERS, HeatPlate

url = sys.argv[1] if len(sys.argv) > 1 else "veena://127.0.0.1:7700"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else sys.maxsize  # until it is stopped
plate = HeatPlate(rows=64, columns=64)  # any program that goes step by step will do

with suppress(KeyboardInterrupt), collab.application("heat", url, parameters=PARAMETERS, period=0.2) as app:
    while app.running and plate.steps < steps:  # between two steps: obeys who steers, waits while paused
        plate.step(**app.values)  # or one by one: app["diffusivity"]
        app.publish_statistics(step=plate.steps, **plate.statistics())
        app.publish_field(plate.field, step=plate.steps)
print(f"{plate.steps} steps, mean {plate.field.mean():.2f} °C")
