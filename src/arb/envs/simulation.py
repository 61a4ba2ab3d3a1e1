"""D4RL's physics on current MuJoCo, and a compiled model behind Gymnasium's interface.

D4RL's data was recorded with MuJoCo 1.50 and 2.0. Two rules have changed since, and both change every recorded step:

* before MuJoCo 2.1.1 (changelog, December 2021) the inertia inferred from a capsule was that of a solid cylinder,
  its middle part lengthened by half a radius at each end; today it is the exact capsule;
* up to MuJoCo 3.4 the margin of a contact was the larger of the margins of the two geoms, since 3.5 it is their sum.

With both undone, recorded transitions are reproduced to the rounding of float32 (`tests/envs`).
"""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

Floats = NDArray[np.float64]


# ---- the physics of D4RL's data --------------------------------------------------------------------------------------
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
        body.mass, body.ipos = scale * part.mass, part.centre
        six = scale * part.matrix[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]  # xx, yy, zz, xy, xz, yz
        # Rounded: the last digit of a matrix product depends on the processor.
        body.fullinertia = np.rint(six * 2.0**40) / 2.0**40
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


def drop_margin(spec: Any, body: str) -> None:
    """Set the contact margin of a body's geoms to 0, so that a contact's margin is the robot's under either rule."""
    for geom in spec.body(body).geoms:
        geom.margin = 0.0


# ---- the environment -------------------------------------------------------------------------------------------------
class Simulation(gymnasium.Env[Floats, NDArray[np.float32]]):
    """A MuJoCo model driven by actions in [-1, 1], held for `frame_skip` steps; subclasses say what it means.

    Actions outside [-1, 1] are clipped before anything else sees them, as D4RL's box-normalising wrapper did.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "depth_array"]}  # noqa: RUF012 - Gymnasium's name

    def __init__(
        self, model: Any, frame_skip: int, *, action_scale: float = 1.0, camera: dict[str, Any],
        render_mode: str | None = None, width: int = 480, height: int = 480,
    ) -> None:  # fmt: skip
        self.model = copy.copy(model)  # its own: a goal is moved in it
        self.data = mujoco.MjData(self.model)
        self.frame_skip = frame_skip
        self.dt = frame_skip * model.opt.timestep
        self.action_scale = action_scale
        self.action_space = Box(-1.0, 1.0, (model.nu,), np.float32)
        self.observation_space = Box(-np.inf, np.inf, self.observe().shape, np.float64)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1 / self.dt)}
        self._camera, self._size = camera, (width, height)
        self._renderer: Any = None

    def observe(self) -> Floats:
        """The observation of the present state."""
        raise NotImplementedError

    def advance(self, action: NDArray[Any]) -> Floats:
        """Simulate one control step and return the action as it was applied."""
        applied = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        self.data.ctrl[:] = applied * self.action_scale
        mujoco.mj_step(self.model, self.data, self.frame_skip)
        return applied

    def set_state(self, qpos: NDArray[Any], qvel: NDArray[Any]) -> None:
        """Put the robot into a state, as at the start of an episode: control, time and solver memory are cleared."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = qpos
        self.data.qvel[:] = qvel
        mujoco.mj_forward(self.model, self.data)

    def render(self) -> Any:
        """The present picture (`rgb_array`, `depth_array`), or nothing (`human` opens a window)."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs a render_mode: make the environment with render_mode='rgb_array'")
            return None
        if self._renderer is None:
            # Imported here: it loads a graphics library, which a machine that only trains need not have.
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            self._renderer = MujocoRenderer(self.model, self.data, self._camera, *self._size)
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
