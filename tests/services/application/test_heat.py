"""The simulation: physics that can be trusted whatever the parameters are, and the adapter that puts it on the mesh."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import veena
from veena import testing
from veena.services.application.heat import PARAMETERS, RIMS, HeatPlate

EXAMPLE = Path(__file__).parents[3] / "examples" / "heat.py"
#: "An adapter of at most 30 lines".
MAX_LINES = 30


@pytest.fixture(name="url", scope="module")
def _url() -> Iterator[str]:
    with testing.broker() as url:
        yield url


@pytest.mark.parametrize("boundary", list(RIMS))
@pytest.mark.parametrize("diffusivity", [PARAMETERS["diffusivity"].low, 0.2, PARAMETERS["diffusivity"].high])
@pytest.mark.parametrize("step_size", [PARAMETERS["step_size"].low, PARAMETERS["step_size"].high])
def test_every_allowed_value_is_stable(boundary: str, diffusivity: float, step_size: float) -> None:
    """The maximum principle: nothing gets hotter than the source or colder than the rim."""
    plate = HeatPlate(16, 24)
    for _ in range(200):
        taken = plate.step(diffusivity, 100.0, 0.3, 0.9, step_size, boundary)
        assert 0 < taken <= step_size
    assert np.isfinite(plate.field).all()
    assert plate.field.min() >= -1e-3 and plate.field.max() <= 100.001


def test_heat_spreads_from_the_source_and_a_cold_rim_takes_it_away() -> None:
    """DIS-23: the parameters do what their names say."""
    cold, insulated = HeatPlate(20, 20), HeatPlate(20, 20)
    for _ in range(400):
        cold.step(boundary="cold")
        insulated.step(boundary="insulated")
    top, left = cold.source(0.5, 0.5)
    assert cold.field[top, left] == 100
    assert 0 < cold.field[0, 0] < cold.field[5, 5] < 100
    assert insulated.field.mean() > 1.5 * cold.field.mean()
    # The source in the middle: the field is the same when it is mirrored, up to the cell that the spot is off-centre.
    assert np.allclose(cold.field, cold.field.T, atol=1e-3)


@pytest.mark.parametrize("boundary", ["insulated", "periodic"])
def test_what_is_warm_everywhere_stays_as_it_is_unless_the_rim_is_cold(boundary: str) -> None:
    plate, cooled = HeatPlate(12, 12), HeatPlate(12, 12)
    plate.field[:] = cooled.field[:] = 40.0
    for _ in range(100):
        plate.step(source_temperature=40.0, boundary=boundary)
        cooled.step(source_temperature=40.0, boundary="cold")
    assert np.allclose(plate.field, 40.0)
    assert cooled.field[0, 0] < 20


def test_sizes_are_bounded() -> None:
    with pytest.raises(ValueError, match="2 x 64 cells"):
        HeatPlate(2, 64)
    assert HeatPlate(3, 3).source(1.0, 1.0) == (slice(2, 3), slice(2, 3))


def test_the_adapter_is_short_and_runs(url: str) -> None:
    """DIS-23, DIC-04: any iterative program comes onto the mesh in at most 30 lines; others see it under its name."""
    assert len(EXAMPLE.read_text().splitlines()) <= MAX_LINES
    with veena.blocking.connect(url, client_id="alice") as alice:
        seen = alice.subscribe(constraint="$domain_name == 'heat' and $type_name == 'Monitoring'")
        ran = subprocess.run([sys.executable, str(EXAMPLE), url, "50"], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("50 steps")
        found: dict[veena.event.Value, veena.Event] = {}
        while not {"state", "field", "statistics"} <= found.keys():
            event = seen.next(timeout=10)
            found[event.headers["event_name"]] = event
    field = found["field"]
    assert np.frombuffer(field.body, str(field.properties["dtype"])).reshape(64, 64).max() == 100
    assert field.properties["shape"] == "64x64"
    assert found["statistics"].properties["high"] == 100.0
