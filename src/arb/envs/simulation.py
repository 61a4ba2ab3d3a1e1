"""The part that all environments here share: a compiled MuJoCo model behind Gymnasium's interface."""

from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from arb.errors import DataError

Floats = NDArray[np.float64]


class Simulation(gymnasium.Env[Floats, NDArray[np.float32]]):
    """A MuJoCo model driven by actions in [-1, 1], held for `frame_skip` steps; subclasses say what it means.

    Actions outside [-1, 1] are clipped before anything else sees them, as D4RL's box-normalising wrapper did.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "depth_array"]}  # noqa: RUF012 - Gymnasium's name

    def __init__(
        self,
        model: Any,
        frame_skip: int,
        observation_size: int,
        action_scale: float = 1.0,
        render_mode: str | None = None,
        camera: dict[str, Any] | None = None,
        width: int = 480,
        height: int = 480,
    ) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        self.frame_skip = frame_skip
        self.dt = frame_skip * model.opt.timestep
        self.action_scale = action_scale
        self.action_space = Box(-1.0, 1.0, (model.nu,), np.float32)
        self.observation_space = Box(-np.inf, np.inf, (observation_size,), np.float64)
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise DataError(f"render_mode {render_mode!r} is not one of {', '.join(self.metadata['render_modes'])}")
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1 / self.dt)}
        self._camera, self._size = camera, (width, height)
        self._renderer: Any = None

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

            width, height = self._size
            self._renderer = MujocoRenderer(self.model, self.data, self._camera, width, height)
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        """Close the renderer, if there is one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
