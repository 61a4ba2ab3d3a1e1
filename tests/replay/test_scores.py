"""Scores of policies without a likelihood, on a Gaussian policy, whose likelihood is known."""

import numpy as np
import pytest

import arb
from arb import ARB, DataError, ReplayBuffer

rng = np.random.default_rng(0)
OBS = rng.uniform(-1, 1, (400, 3))
MEAN = np.tanh(OBS @ rng.normal(size=(3, 2)))
STD = 0.3
ACTION = MEAN + rng.normal(size=MEAN.shape) * rng.uniform(0.1, 1.0, (400, 1))
TRUTH = arb.gaussian_score(lambda obs: (MEAN, np.log(STD)))(OBS, ACTION)


def mean(obs):
    return MEAN[: len(obs)]


def velocity(obs, x, t):
    """The field that leads to N(MEAN, STD²): E[action - noise | x]."""
    variance = (1 - t) ** 2 + (t * STD) ** 2
    return mean(obs) + (t * STD**2 - (1 - t)) / variance * (x - t * mean(obs))


def slope(score):
    """How the score rises with the true one, if the two differ by an affine change; nan otherwise."""
    fit = np.polyfit(TRUTH, score, 1)
    return fit[0] if np.allclose(np.polyval(fit, TRUTH), score, atol=1e-3 * np.ptp(score)) else np.nan


def test_a_distance_is_a_gaussian_of_any_width():
    assert slope(arb.distance_score(mean)(OBS, ACTION)) == pytest.approx(STD**2)
    assert slope(arb.distance_score(mean, scale=STD)(OBS, ACTION)) == pytest.approx(1.0)


def test_a_flow_to_a_gaussian_has_its_order_with_two_draws():
    # with noise of both signs the loss is (1 - t)² / variance(t)² · distance² plus a constant, here at t = 1/2
    assert slope(arb.flow_score(velocity)(OBS, ACTION)) == pytest.approx(STD**2 * (0.5 / (0.25 + 0.25 * STD**2)) ** 2)
    assert slope(arb.flow_score(velocity, draws=6)(OBS, ACTION)) > 0


def test_a_flow_is_scored_at_equal_noise_for_equal_seeds():
    one, same, other = (arb.flow_score(lambda o, x, t: np.sin(9 * x), seed=s)(OBS, ACTION) for s in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()


def test_many_samples_of_a_gaussian_have_its_order():
    draws = np.random.default_rng(1)

    def sample(obs):
        return mean(obs) + STD * draws.normal(size=(len(obs), 2))

    width = 0.5
    score = arb.sample_score(sample, 20_000, width=width)(OBS[:40], ACTION[:40])
    # a Gaussian smoothed by the kernel; the distance is a mean over 2 dimensions, so its variance is 2 width² in each
    expected = -np.square(ACTION - MEAN)[:40].sum(-1) / 2 / (2 * width**2 + STD**2)
    np.testing.assert_allclose(score - score.mean(), expected - expected.mean(), atol=0.03)


def test_samples_of_two_modes():
    sides = np.random.default_rng(2)

    def sample(obs):
        return sides.choice([-0.8, 0.8], (len(obs), 1))

    actions = np.array([[-0.8], [0.0], [0.8]])
    left, between, right = arb.sample_score(sample, 64)(np.zeros((3, 1)), actions)
    assert left == pytest.approx(right, abs=0.5)
    assert between < left - 5  # where the mean of the policy is
    assert arb.sample_score(lambda obs: np.zeros((3, 1)), 1, width=1.0)(OBS[:3], actions).tolist() == pytest.approx(
        arb.distance_score(lambda obs: np.zeros((3, 1)))(OBS[:3], actions).tolist()
    )


def test_the_unit_is_half_the_range_of_the_actions_in_each_dimension():
    buffer = ReplayBuffer(10, ARB(1.0), action_bounds=([-1, -100], [1, 100]), seed=0)
    for action in ([1.0, 0.0], [0.0, 100.0], [0.0, 0.0]):
        buffer.add([0.0], action, 0.0, [0.0], terminated=True)
    buffer.refresh(arb.distance_score(lambda obs: np.zeros((len(obs), 2))))
    p = buffer.sampler.probabilities()
    assert p[0] == pytest.approx(p[1])
    assert p[2] == pytest.approx(p[0] * np.exp(0.25))
    buffer.refresh(arb.distance_score(lambda obs: np.zeros((len(obs), 2)), scale=(1, 1e9)))
    assert buffer.sampler.probabilities()[1] == pytest.approx(p[2], rel=0.1)


def test_chunks_of_actions():
    chunks = ACTION.reshape(200, 2, 2)
    near = arb.distance_score(lambda obs: MEAN.reshape(200, 2, 2))(OBS[:200], chunks)
    single = arb.distance_score(mean)(OBS, ACTION)
    np.testing.assert_allclose(near, single.reshape(200, 2).mean(-1))
    assert arb.flow_score(lambda o, x, t: x * t[..., None])(OBS[:200], chunks).shape == (200,)


def test_actions_of_one_number():
    assert arb.flow_score(lambda o, x, t: x)(OBS, ACTION[:, 0]).shape == (400,)
    assert arb.distance_score(lambda obs: MEAN[:, 0])(OBS, ACTION[:, 0]).shape == (400,)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: arb.flow_score(velocity, draws=3), "even number"),
        (lambda: arb.sample_score(mean, 0), "at least one sample"),
        (lambda: arb.distance_score(mean, scale=[1, 0]), "scale must be above 0"),
        (lambda: arb.distance_score(lambda o: MEAN[:, :1])(OBS, ACTION), "returned shape \\(400, 1\\)"),
        (lambda: arb.distance_score(lambda o: (MEAN, STD))(OBS, ACTION), "returned 2 things"),
        (lambda: arb.distance_score(lambda o: np.zeros(400, int))(OBS, np.zeros(400, int)), "continuous actions"),
    ],
)
def test_what_is_refused(make, said):
    with pytest.raises(DataError, match=said):
        make()


def test_the_field_that_leads_to_an_action_has_no_loss():
    score = arb.flow_score(lambda obs, x, t: (ACTION - x) / (1.0 - t), draws=4)
    assert np.abs(score(OBS, ACTION)).max() < 1e-6
