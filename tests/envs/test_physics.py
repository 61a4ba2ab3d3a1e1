"""The two changes of MuJoCo that are undone, and the models that come out, against the figures of the specification."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb.envs import antmaze, locomotion
from arb.envs.antmaze import MAZES
from arb.envs.simulation import Inertia, capsule_as_cylinder, combine

sizes = st.floats(0.01, 1.0)


def test_a_capsule_weighs_what_a_cylinder_longer_by_half_a_radius_at_each_end_weighs() -> None:
    mass, transverse, axial = capsule_as_cylinder(radius=2.0, half_length=3.0, density=0.5)
    # length 2*3 + 2 = 8; mass 0.5 * pi * 4 * 8 = 16 pi; transverse 16 pi (12 + 64) / 12; axial 16 pi * 4 / 2
    np.testing.assert_allclose([mass, transverse, axial], np.pi * np.array([16, 304 / 3, 32]), rtol=1e-15)


@given(sizes, sizes)
def test_the_old_rule_is_always_lighter_than_the_exact_capsule(radius: float, half_length: float) -> None:
    exact = np.pi * radius**2 * (2 * half_length + 4 / 3 * radius)
    assert capsule_as_cylinder(radius, half_length, 1.0)[0] < exact


@given(sizes, sizes, sizes)
def test_two_halves_of_a_rod_combine_to_the_rod(radius: float, length: float, at: float) -> None:
    def rod(total: float, centre: float) -> Inertia:
        mass = np.pi * radius**2 * total
        across = mass * (3 * radius**2 + total**2) / 12
        return Inertia(mass, np.array([0, at, centre]), np.diag([across, across, mass * radius**2 / 2]))

    halves = combine([rod(length, -length / 2), rod(length, length / 2)])
    whole = rod(2 * length, 0.0)
    assert halves.mass == pytest.approx(whole.mass)
    np.testing.assert_allclose(halves.centre, whole.centre, atol=1e-12)
    np.testing.assert_allclose(halves.matrix, whole.matrix, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("robot", "total"), [("hopper", 15.2649987038), ("walker2d", 22.6980069222), ("halfcheetah", 14.0)]
)
def test_the_locomotion_robots_weigh_what_they_weighed(robot: str, total: float) -> None:
    model = locomotion.build_model(robot)
    assert model.body_mass.sum() == pytest.approx(total, abs=1e-9)
    assert model.body_subtreemass[0] == pytest.approx(total, abs=1e-9)  # derived: misses nothing that was changed late


# body: mass, transverse and axial inertia (section 3 of the locomotion specification)
HOPPER = {
    "torso": (3.5342917353, 6.185010537e-2, 4.417864669e-3),
    "thigh": (3.9269908170, 8.426667795e-2, 4.908738521e-3),
    "leg": (2.7143360527, 6.704410050e-2, 2.171468842e-3),
    "foot": (5.0893800988, 9.046373126e-2, 9.160884178e-3),
}
CHEETAH = {
    "torso": (6.3603133159, 8.944536067e-1, 1.761779619e-2),
    "bthigh": (1.5352480418, 1.525575979e-2, 1.624292428e-3),
    "bshin": (1.5809399478, 1.660830113e-2, 1.672634465e-3),
    "bfoot": (1.0691906005, 5.444318538e-3, 1.131203655e-3),
    "fthigh": (1.4255874674, 1.231850131e-2, 1.508271540e-3),
    "fshin": (1.1788511749, 7.162699739e-3, 1.247224543e-3),
    "ffoot": (0.8498694517, 2.899754569e-3, 8.991618799e-4),
}


@pytest.mark.parametrize(("robot", "bodies"), [("hopper", HOPPER), ("halfcheetah", CHEETAH)])
def test_every_body_has_its_old_inertia(robot: str, bodies: dict[str, tuple[float, float, float]]) -> None:
    model = locomotion.build_model(robot)
    for name, (mass, transverse, axial) in bodies.items():
        body = model.body(name)
        assert body.mass[0] == pytest.approx(mass, rel=1e-9)
        assert max(body.inertia) == pytest.approx(transverse, rel=1e-9)
        assert min(body.inertia) == pytest.approx(axial, rel=1e-9)


def test_the_two_capsules_of_the_cheetahs_torso_move_its_centre() -> None:
    np.testing.assert_allclose(
        locomotion.build_model("halfcheetah").body("torso").ipos, [0.149138, 0, 0.024856], atol=1e-6
    )


@pytest.mark.parametrize("robot", ["hopper", "walker2d"])
def test_integrator_solver_and_timestep_are_those_of_the_data(robot: str) -> None:
    option = locomotion.build_model(robot).opt
    assert option.integrator == mujoco.mjtIntegrator.mjINT_RK4
    assert option.timestep == 0.002
    assert option.solver == mujoco.mjtSolver.mjSOL_NEWTON
    assert option.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL


def test_the_walkers_feet_differ_in_friction() -> None:
    model = locomotion.build_model("walker2d")
    assert model.geom("foot_geom").friction[0] == 0.9
    assert model.geom("foot_left_geom").friction[0] == 1.9


@pytest.mark.parametrize(("robot", "margin"), [("hopper", 0.001), ("walker2d", 0.0), ("halfcheetah", 0.0)])
def test_floor_contacts_have_the_old_margin(robot: str, margin: float) -> None:
    env = locomotion.Locomotion(robot)
    env.reset(seed=0)
    found = set()
    for _ in range(200):
        env.step(np.zeros(env.action_space.shape))
        found |= {float(contact.includemargin) for contact in env.data.contact}
    assert found == {margin}


@pytest.mark.parametrize(("maze", "walls"), [("umaze", 18), ("medium", 38), ("large", 62)])
def test_the_ant_and_its_mazes_compile_to_the_specified_model(maze: str, walls: int) -> None:
    model = antmaze.build_model(MAZES[maze])
    assert (model.nq, model.nv, model.nu, model.nbody, model.ngeom) == (15, 14, 8, 14, 14 + walls)
    assert (model.opt.timestep, model.opt.integrator) == (0.02, mujoco.mjtIntegrator.mjINT_RK4)
    assert (model.actuator_gear == [1, 0, 0, 0, 0, 0]).all()
    assert (model.actuator_ctrlrange == [-30, 30]).all()
    np.testing.assert_array_equal(model.qpos0, [0, 0, 0.75, 1] + [0] * 11)
    np.testing.assert_allclose(model.geom_solimp, np.tile([0.8, 0.8, 0.01, 0.5, 2], (model.ngeom, 1)))
    np.testing.assert_allclose(model.geom_solref, np.tile([0.02, 1], (model.ngeom, 1)))
    np.testing.assert_allclose(model.geom_friction, np.tile([1, 0.5, 0.5], (model.ngeom, 1)))
    assert (model.geom_condim == 3).all()
    np.testing.assert_allclose(model.jnt_solimp, np.tile([0.9, 0.95, 0.001, 0.5, 2], (model.njnt, 1)))
    assert (model.dof_armature[6:] == 1).all()
    assert (model.dof_damping[6:] == 1).all()


def test_the_ants_bodies_have_their_old_inertia() -> None:
    model = antmaze.build_model(MAZES["umaze"])
    assert model.body_mass.sum() == pytest.approx(0.8787101739, abs=1e-9)
    masses = np.sort(model.body_mass[1:])
    np.testing.assert_allclose(masses[:8], 0.0364769280, rtol=1e-8)
    np.testing.assert_allclose(masses[8:12], 0.0649113788, rtol=1e-8)
    legs = model.body_inertia[np.isclose(model.body_mass, 0.0364769280)]
    np.testing.assert_allclose(
        np.sort(legs, 1), np.tile([1.167261696e-4, 4.585600765e-4, 4.585600765e-4], (8, 1)), rtol=1e-8
    )
    ankles = model.body_inertia[np.isclose(model.body_mass, 0.0649113788)]
    np.testing.assert_allclose(
        np.sort(ankles, 1), np.tile([2.077164122e-4, 2.359039988e-3, 2.359039988e-3], (4, 1)), rtol=1e-8
    )


def test_every_contact_of_an_ant_on_floor_and_wall_has_margin_one_centimetre() -> None:
    env = antmaze.AntMaze("umaze")
    env.reset(seed=0)
    pressed = env.model.qpos0.copy()
    pressed[0] = -1.9  # the wall west of the start cell begins at x = -2
    env.set_state(pressed, np.zeros(14))
    margins, against_wall = set(), False
    for _ in range(30):
        env.step(np.zeros(8))
        margins |= {float(contact.includemargin) for contact in env.data.contact}
        names = {env.model.geom(int(number)).name for number in env.data.contact.geom.ravel()}
        against_wall |= any(name.startswith("wall") for name in names)
    assert margins == {0.01}
    assert against_wall


@pytest.mark.parametrize("make", [lambda: antmaze.AntMaze("umaze"), lambda: locomotion.Locomotion("hopper")])
def test_every_environment_has_a_model_of_its_own(make):
    one, other = make().model, make().model
    before = other.body_mass.copy()
    one.body_mass[:] = 7.0
    np.testing.assert_array_equal(other.body_mass, before)
    np.testing.assert_array_equal(make().model.body_mass, before)
