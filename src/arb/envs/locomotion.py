"""D4RL's hopper, walker2d and halfcheetah: the -v2 tasks of Gym, with the physics their data was recorded with."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.envs.simulation import Floats, Simulation, drop_margin, load_spec, restore_capsule_inertia


@dataclass(frozen=True)
class Robot:
    """What tells one locomotion task from another (Gym's -v2 environments, as D4RL used them)."""

    file: str
    frame_skip: int
    control_cost: float
    alive: float
    clip_velocity: float
    position_noise: float
    velocity_noise: float
    gaussian_velocity: bool
    height: tuple[float, float]
    angle: tuple[float, float]
    state_limit: float
    camera: dict[str, Any]

    def healthy(self, qpos: Floats, qvel: Floats) -> bool:
        """Whether the episode continues: upright, high enough, and the simulation has not blown up."""
        rest = np.concatenate([qpos[2:], qvel])
        return bool(
            self.height[0] < qpos[1] < self.height[1]
            and self.angle[0] < qpos[2] < self.angle[1]
            and np.all(np.abs(rest) < self.state_limit)
        )

    def observe(self, qpos: Floats, qvel: Floats) -> Floats:
        """Positions without x, then velocities, clipped where Gym's environment clips them."""
        return np.concatenate([qpos[1:], np.clip(qvel, -self.clip_velocity, self.clip_velocity)])


INF = float("inf")
ANYWHERE = (-INF, INF)
SIDE = {"trackbodyid": 1, "elevation": -15.0}

# walker2d.xml is the file with feet friction 0.9 and 1.9, as in the data; walker2d_v5.xml has another.
# fmt: off
ROBOTS = {
    "hopper": Robot(
        file="hopper.xml", frame_skip=4, control_cost=1e-3, alive=1.0, clip_velocity=10.0,
        position_noise=5e-3, velocity_noise=5e-3, gaussian_velocity=False,
        height=(0.7, INF), angle=(-0.2, 0.2), state_limit=100.0, camera={**SIDE, "distance": 3.0},
    ),
    "walker2d": Robot(
        file="walker2d.xml", frame_skip=4, control_cost=1e-3, alive=1.0, clip_velocity=10.0,
        position_noise=5e-3, velocity_noise=5e-3, gaussian_velocity=False,
        height=(0.8, 2.0), angle=(-1.0, 1.0), state_limit=INF, camera={**SIDE, "distance": 4.0},
    ),
    "halfcheetah": Robot(
        file="half_cheetah.xml", frame_skip=5, control_cost=0.1, alive=0.0, clip_velocity=INF,
        position_noise=0.1, velocity_noise=0.1, gaussian_velocity=True,
        height=ANYWHERE, angle=ANYWHERE, state_limit=INF, camera={**SIDE, "distance": 4.0},
    ),
}
# fmt: on


@cache
def build_model(robot: str) -> Any:
    """The compiled MuJoCo model of one of `ROBOTS`.

    Compiled once: every evaluation makes its environments anew, and compiling is nearly all it costs.
    """
    spec = load_spec(ROBOTS[robot].file)
    if robot == "hopper":  # the only one of the three with contact margins
        drop_margin(spec, "world")
    restore_capsule_inertia(spec)
    return spec.compile()


class Locomotion(Simulation):
    """Run forward: reward is speed, plus a bonus for staying up, minus a cost of control."""

    def __init__(self, robot: str, **view: Any) -> None:
        self.robot = ROBOTS[robot]
        super().__init__(build_model(robot), self.robot.frame_skip, camera=self.robot.camera, **view)

    def observe(self) -> Floats:
        return self.robot.observe(self.data.qpos, self.data.qvel)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Start upright and at rest, but for a little noise."""
        super().reset(seed=seed, options=options)
        noise, robot = self.np_random, self.robot
        qpos = self.model.qpos0 + noise.uniform(-robot.position_noise, robot.position_noise, self.model.nq)
        if robot.gaussian_velocity:
            qvel = robot.velocity_noise * noise.standard_normal(self.model.nv)
        else:
            qvel = noise.uniform(-robot.velocity_noise, robot.velocity_noise, self.model.nv)
        self.set_state(qpos, qvel)
        return self.observe(), {}

    def step(self, action: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        before = self.data.qpos[0]
        applied = self.advance(action)
        speed = (self.data.qpos[0] - before) / self.dt
        reward = speed + self.robot.alive - self.robot.control_cost * np.square(applied).sum()
        terminated = not self.robot.healthy(self.data.qpos, self.data.qvel)
        info = {"x_position": float(self.data.qpos[0]), "x_velocity": float(speed)}
        return self.observe(), float(reward), terminated, False, info
