"""A plate that is heated at one spot: the two-dimensional heat equation, explicit in time (DIS-23).

A simulation worth steering: where the source stands, how hot it is, how fast heat spreads and what happens at the rim
all show in the field within seconds. It knows nothing of the mesh.

An explicit scheme is stable while diffusivity x step <= 1/4 (in cells). The step that is taken is bounded by that, so
every value that the parameters allow is stable, and none makes the field oscillate or grow beyond its sources.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veena.services.application.parameters import Parameter

Field = NDArray[np.float32]

#: The largest diffusivity x step at which the five-point scheme is stable.
STABLE = 0.25
#: How numpy continues the field beyond its rim, by what the rim is called.
RIMS = {"cold": "constant", "insulated": "edge", "periodic": "wrap"}
MAX_SIDE = 2048

PARAMETERS = {
    "diffusivity": Parameter(0.2, low=0.001, high=10.0, unit="cells²/s", about="how fast heat spreads"),
    "source_temperature": Parameter(100.0, low=-200.0, high=1000.0, unit="°C", about="of the heated spot"),
    "source_x": Parameter(0.5, low=0.0, high=1.0, about="where the spot is, from left to right"),
    "source_y": Parameter(0.5, low=0.0, high=1.0, about="where the spot is, from top to bottom"),
    "step_size": Parameter(1.0, low=0.001, high=10.0, unit="s", about="the longest step; a shorter one where needed"),
    "boundary": Parameter("cold", choices=tuple(RIMS), about="what happens at the rim"),
}


class HeatPlate:
    """The plate; rows from top to bottom, temperatures in degrees, cells of side 1."""

    def __init__(self, rows: int = 64, columns: int = 64) -> None:
        if not (3 <= rows <= MAX_SIDE and 3 <= columns <= MAX_SIDE):
            raise ValueError(f"{rows} x {columns} cells: expected 3 to {MAX_SIDE} each way")
        self.field: Field = np.zeros((rows, columns), np.float32)
        #: Steps taken, and the time that they simulate.
        self.steps = 0
        self.seconds = 0.0

    def step(
        self,
        diffusivity: float = 0.2,
        source_temperature: float = 100.0,
        source_x: float = 0.5,
        source_y: float = 0.5,
        step_size: float = 1.0,
        boundary: str = "cold",
    ) -> float:
        """Take one step; how many seconds it was."""
        taken = min(step_size, STABLE / diffusivity)
        old = self.field
        around = np.pad(old, 1, mode=RIMS[boundary])  # type: ignore[call-overload]
        flow = around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:] - 4 * old
        self.field = old + np.float32(diffusivity * taken) * flow
        self.field[self.source(source_x, source_y)] = source_temperature
        self.steps += 1
        self.seconds += taken
        return taken

    def source(self, x: float, y: float) -> tuple[slice, slice]:
        """The cells of the heated spot: a twentieth of the plate, at least one."""
        rows, columns = self.field.shape
        tall, wide = max(1, rows // 20), max(1, columns // 20)
        top, left = round(y * (rows - tall)), round(x * (columns - wide))
        return slice(top, top + tall), slice(left, left + wide)

    def statistics(self) -> dict[str, float]:
        """The field in four numbers."""
        field = self.field
        return {
            "seconds": round(self.seconds, 6),
            "mean": float(field.mean(dtype=np.float64)),
            "low": float(field.min()),
            "high": float(field.max()),
        }
