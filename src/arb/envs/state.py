"""Save and restore an environment in the middle of an episode, so that a run can continue bit for bit.

A state is a dict of numbers, strings and lists that JSON keeps exactly (no pickle): the simulator's integration
state, the steps counted by a time limit, and the state of every random generator.
"""

from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.registration import EnvSpec

from arb.errors import DataError

State = dict[str, Any]
PLAIN = (bool, int, float, str, type(None))
CONSTANT = (dict, gymnasium.Space, EnvSpec, np.random.Generator)
DRAWING = ("screen", "clock", "surf", "isopen", "renderer")
"""Where Gymnasium's environments keep their windows."""


def save_state(env: gymnasium.Env[Any, Any]) -> State:
    """Everything that decides how the environment continues from here.

    Works for every environment on MuJoCo (here or in Gymnasium) and for those whose state is plain numbers and
    arrays, such as Gymnasium's classic control. An environment with a state of another kind may define
    `state_extra()` and `restore_extra(extra)`.
    """
    inner: Any = env.unwrapped
    elapsed = [wrapper._elapsed_steps for wrapper in _counting(env)]
    state: State = {"elapsed": elapsed, "random": dict(inner.np_random.bit_generator.state)}
    if env.action_space._np_random is not None:
        state["action_random"] = dict(env.action_space.np_random.bit_generator.state)
    if hasattr(inner, "model") and hasattr(getattr(inner, "data", None), "qpos"):
        numbers = np.empty(mujoco.mj_stateSize(inner.model, mujoco.mjtState.mjSTATE_INTEGRATION))
        mujoco.mj_getState(inner.model, inner.data, numbers, mujoco.mjtState.mjSTATE_INTEGRATION)
        state["mujoco"] = numbers.tolist()
    elif not hasattr(inner, "state_extra"):
        state["attributes"] = _plain_attributes(inner)
    if hasattr(inner, "state_extra"):
        state["extra"] = inner.state_extra()
    return state


def restore_state(env: gymnasium.Env[Any, Any], state: State) -> None:
    """Put an environment made with the same arguments into a saved state. No observation is returned: keep yours."""
    env.reset()  # wrappers refuse to step before a first reset; everything it draws is overwritten below
    inner: Any = env.unwrapped
    if "mujoco" in state:
        numbers = np.asarray(state["mujoco"], np.float64)
        expected = mujoco.mj_stateSize(inner.model, mujoco.mjtState.mjSTATE_INTEGRATION)
        if numbers.size != expected:
            raise DataError(f"the saved state has {numbers.size} numbers, not {expected}: it is of another model")
        mujoco.mj_setState(inner.model, inner.data, numbers, mujoco.mjtState.mjSTATE_INTEGRATION)
        # Positions of bodies and contacts follow from the state; the solver's memory, part of it, must not be touched.
        warmstart = inner.data.qacc_warmstart.copy()
        mujoco.mj_forward(inner.model, inner.data)
        inner.data.qacc_warmstart[:] = warmstart
    for name, value in state.get("attributes", {}).items():
        setattr(inner, name, _decode(value))
    if "extra" in state:
        inner.restore_extra(state["extra"])
    inner.np_random.bit_generator.state = state["random"]
    if "action_random" in state:
        env.action_space.np_random.bit_generator.state = state["action_random"]
    for wrapper, steps in zip(_counting(env), state["elapsed"], strict=True):
        wrapper._elapsed_steps = steps


def _plain_attributes(inner: Any) -> dict[str, Any]:
    """Numbers, arrays and lists held by an environment; what a constructor makes once (dicts, spaces) is left out."""
    attributes: dict[str, Any] = {}
    for name, value in vars(inner).items():
        if name in DRAWING or isinstance(value, CONSTANT) or callable(value):
            continue
        try:
            attributes[name] = _encode(value)
        except TypeError:
            raise DataError(
                f"{type(inner).__name__} keeps a {type(value).__name__} as {name}, which cannot be saved: "
                "let it define state_extra() and restore_extra(extra)"
            ) from None
    return attributes


def _encode(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiubSU":
        plain = value.astype("U") if value.dtype.kind == "S" else value
        return {"array": plain.tolist(), "dtype": str(value.dtype)}
    if isinstance(value, tuple):
        return {"tuple": [_encode(entry) for entry in value]}
    if isinstance(value, list):
        return [_encode(entry) for entry in value]
    if isinstance(value, PLAIN):
        return value
    raise TypeError


def _decode(saved: Any) -> Any:
    if isinstance(saved, dict) and "array" in saved:
        return np.asarray(saved["array"]).astype(saved["dtype"])
    if isinstance(saved, dict):
        return tuple(_decode(entry) for entry in saved["tuple"])
    return [_decode(entry) for entry in saved] if isinstance(saved, list) else saved


def _counting(env: Any) -> list[Any]:
    """The wrappers that count steps, from the outside in; Gymnasium forwards attributes to what they wrap."""
    chain = []
    while isinstance(env, gymnasium.Wrapper):
        if "_elapsed_steps" in vars(env):
            chain.append(env)
        env = env.env
    return chain
