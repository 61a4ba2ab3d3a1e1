"""D4RL's physics on today's MuJoCo: Gymnasium's model files, with two changes of the simulator undone.

D4RL's data was recorded with MuJoCo 1.50 and 2.0. Two rules have changed since, and both move every recorded step:

* before MuJoCo 2.1.1 (changelog, December 2021) the inertia inferred from a capsule was that of a solid cylinder,
  its middle part lengthened by half a radius at each end; today it is the exact capsule;
* up to MuJoCo 3.4 the margin of a contact was the larger of the margins of the two geoms, since 3.5 it is their sum.

With both undone, genuine recorded transitions are reproduced to the rounding of float32 (`tests/envs`).
"""

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Inertia(NamedTuple):
    """Mass, centre of mass, and the inertia matrix about that centre, in the frame of the body."""

    mass: float
    centre: Floats
    matrix: Floats


def capsule_as_cylinder(radius: float, half_length: float, density: float) -> tuple[float, float, float]:
    """Mass, transverse and axial inertia that MuJoCo before 2.1.1 gave a capsule: a cylinder of length 2h + r."""
    length = 2 * half_length + radius
    mass = density * np.pi * radius**2 * length
    return mass, mass * (3 * radius**2 + length**2) / 12, mass * radius**2 / 2


def combine(parts: list[Inertia]) -> Inertia:
    """The inertia of rigidly joined parts (parallel-axis theorem)."""
    mass = sum(part.mass for part in parts)
    centre = sum((part.mass * part.centre for part in parts), np.zeros(3)) / mass
    matrix = np.zeros((3, 3))
    for part in parts:
        offset = part.centre - centre
        matrix += part.matrix + part.mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))
    return Inertia(mass, centre, matrix)


def load_spec(name: str) -> Any:
    """A model file of the installed Gymnasium, e.g. `hopper.xml`, as an editable `mujoco.MjSpec`."""
    return mujoco.MjSpec.from_file(str(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / name))


def restore_capsule_inertia(spec: Any) -> None:
    """Give every body made of capsules the inertia of MuJoCo before 2.1.1.

    Written into the spec, not into the compiled model, so that the compiler derives everything else (such as the
    inverse weights that scale contact forces) from the new values. A total mass that the file prescribes is kept.
    """
    total, spec.compiler.settotalmass = spec.compiler.settotalmass, -1.0  # deprecated: compiling with it warns
    model = spec.compile()
    old = {}
    bodies = _in_compiled_order(spec.worldbody)
    for number, body in enumerate(bodies):
        capsules = [geom for geom in body.geoms if geom.type == mujoco.mjtGeom.mjGEOM_CAPSULE]
        if capsules and len(capsules) != len(body.geoms):
            raise ValueError(f"body {body.name!r} mixes capsules with other shapes, which no D4RL model does")
        if capsules:
            first = model.body_geomadr[number]
            old[number] = combine([_cylinder(model, first + i, geom.density) for i, geom in enumerate(capsules)])
    scale = total / sum(part.mass for part in old.values()) if total > 0 else 1.0
    for number, part in old.items():
        body = bodies[number]
        body.explicitinertial = True
        body.mass, body.ipos, body.fullinertia = scale * part.mass, part.centre, _six_numbers(scale * part.matrix)
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_AUTO


def _in_compiled_order(body: Any) -> list[Any]:
    """A body and all below it, depth first: the numbers that bodies get (`spec.bodies` is ordered so only lately)."""
    return [body, *(below for child in body.bodies for below in _in_compiled_order(child))]


def _cylinder(model: Any, geom: int, density: float) -> Inertia:
    radius, half_length = model.geom_size[geom, :2]
    mass, transverse, axial = capsule_as_cylinder(radius, half_length, density)
    frame = np.zeros(9)
    mujoco.mju_quat2Mat(frame, model.geom_quat[geom])
    turn = frame.reshape(3, 3)
    return Inertia(mass, model.geom_pos[geom].copy(), turn @ np.diag([transverse, transverse, axial]) @ turn.T)


def _six_numbers(m: Floats) -> list[float]:
    """MuJoCo's order of a symmetric matrix: xx, yy, zz, xy, xz, yz."""
    return [m[0, 0], m[1, 1], m[2, 2], m[0, 1], m[0, 2], m[1, 2]]


def drop_margin(spec: Any, body: str) -> None:
    """Set the contact margin of a body's geoms to 0, so that a contact's margin is the robot's under either rule."""
    for geom in spec.body(body).geoms:
        geom.margin = 0.0
