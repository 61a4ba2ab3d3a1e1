import re

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import arb
from arb.errors import DataError
from arb.replay.arb import group_mean, log_onpolicyness
from arb.replay.scores import (
    EDGE,
    as_numpy,
    categorical_log_likelihood,
    gaussian_log_likelihood,
    tanh_gaussian_log_likelihood,
)

HALF_LOG_2PI = 0.9189385332046727
vectors = hnp.arrays(np.float64, (5, 3), elements=st.floats(-3, 3))


def relu_network(arrays, prefix, x):
    depth = sum(key.startswith(f"{prefix}.w") for key in arrays)
    for layer in range(depth):
        x = x @ arrays[f"{prefix}.w{layer}"] + arrays[f"{prefix}.b{layer}"]
        x = np.maximum(x, 0.0) if layer < depth - 1 else x
    return x


# ---- by hand ----------------------------------------------------------------------------------------------------


def test_gaussian_by_hand():
    action, mean, log_std = np.array([[2.0, 1.0]]), np.array([[0.0, 1.0]]), np.log([2.0, 0.5])
    # z = (1, 0): standard-normal log-densities -½ - c and -c, mean of the two
    assert gaussian_log_likelihood(action, mean, log_std) == pytest.approx(-0.25 - HALF_LOG_2PI)
    # sum of both, minus log 2 - log 2 = 0
    assert gaussian_log_likelihood(action, mean, log_std, "density") == pytest.approx(-0.5 - 2 * HALF_LOG_2PI)


def test_tanh_gaussian_by_hand():
    action = np.tanh([[0.5]])
    standard = tanh_gaussian_log_likelihood(action, np.zeros((1, 1)), np.zeros(1))
    density = tanh_gaussian_log_likelihood(action, np.zeros((1, 1)), np.zeros(1), "density")
    assert standard == pytest.approx(-0.125 - HALF_LOG_2PI)
    assert density == pytest.approx(-0.125 - HALF_LOG_2PI - np.log(1 - np.tanh(0.5) ** 2))


def test_categorical_by_hand():
    logits = np.log([[0.2, 0.8], [0.5, 0.5]])
    np.testing.assert_allclose(categorical_log_likelihood(np.array([0, 1]), logits), np.log([0.2, 0.5]))
    both = np.stack([logits, logits], axis=1)  # two independent choices per row
    action = np.array([[0, 1], [0, 0]])
    np.testing.assert_allclose(categorical_log_likelihood(action, both), np.log([0.16, 0.25]) / 2)
    np.testing.assert_allclose(categorical_log_likelihood(action, both, "density"), np.log([0.16, 0.25]))


# ---- properties -------------------------------------------------------------------------------------------------


@given(vectors, vectors, hnp.arrays(np.float64, 3, elements=st.floats(-2, 1)))
def test_standard_is_density_without_the_width_per_dimension(action, mean, log_std):
    standard = gaussian_log_likelihood(action, mean, log_std)
    density = gaussian_log_likelihood(action, mean, log_std, "density")
    np.testing.assert_allclose(standard, (density + log_std.sum()) / 3, atol=1e-9)
    assert (standard <= -HALF_LOG_2PI + 1e-12).all()


@given(st.floats(-1, 1), st.floats(-2, -0.5))
def test_a_density_integrates_to_one(mean, log_std):
    edge = np.linspace(-1, 1, 20_001)
    middle = (edge[1:] + edge[:-1]) / 2
    density = np.exp(tanh_gaussian_log_likelihood(middle[:, None], np.array([[mean]]), np.array([log_std]), "density"))
    assert density.sum() * (edge[1] - edge[0]) == pytest.approx(1.0, abs=2e-3)


@given(hnp.arrays(np.float64, (4, 6), elements=st.floats(-500, 500)))
def test_categorical_probabilities_sum_to_one(logits):
    choices = [np.full(4, k) for k in range(6)]
    total = sum(np.exp(categorical_log_likelihood(choice, logits)) for choice in choices)
    np.testing.assert_allclose(total, 1.0)


@given(vectors)
def test_another_action_range_is_a_change_of_units(unit):
    unit = np.tanh(unit)
    scaled = 3.0 + 2.0 * unit  # [-1, 1] -> [1, 5]
    mean, log_std = np.zeros((5, 3)), np.zeros(3)
    for kind, shift in (("standard", 0.0), ("density", 3 * np.log(2.0))):
        a = tanh_gaussian_log_likelihood(unit, mean, log_std, kind)
        b = tanh_gaussian_log_likelihood(scaled, mean, log_std, kind, low=1.0, high=5.0)
        np.testing.assert_allclose(a, b + shift, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_at_and_beyond_the_boundary_score_as_just_inside(dtype):
    mean, log_std = np.zeros((1, 1)), np.zeros(1)
    inside = tanh_gaussian_log_likelihood(np.array([[EDGE]]), mean, log_std)
    for action in (1.0, 1.0 + 1e-7):
        at = tanh_gaussian_log_likelihood(np.array([[action]], dtype), mean, log_std)
        assert np.isfinite(at).all()
        assert at == pytest.approx(inside)


# ---- golden numbers ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["arb_weights_lambda05", "arb_weights_lambda5"])
def reference(request, golden):
    with np.load(golden / f"{request.param}.npz") as file:
        return {name: file[name] for name in file.files}


def weights(reference, score, level):
    low, high, temperature = (float(reference[k]) for k in ("low", "high", "temperature"))
    log_onp = log_onpolicyness(score, low, high)
    if level == "transition":
        return np.exp(log_onp / temperature)
    trajectory = reference["trajectory"]
    return np.exp(group_mean(log_onp, trajectory, trajectory.max() + 1) / temperature)[trajectory]


def test_parity_with_the_gaussian_reference(reference):
    mean = np.tanh(relu_network(reference, "gaussian.policy", reference["obs"]))
    log_std = reference["gaussian.log_std"]
    score = arb.gaussian_score(lambda obs: (mean, log_std))(reference["obs"], reference["action"])
    density = arb.gaussian_score(lambda obs: (mean, log_std), "density")(reference["obs"], reference["action"])
    np.testing.assert_allclose(score, reference["gaussian.score"], rtol=1e-4)
    np.testing.assert_allclose(density, reference["gaussian.density"], rtol=1e-4)
    for level in ("trajectory", "transition"):
        np.testing.assert_allclose(weights(reference, score, level), reference[f"gaussian.weight.{level}"], rtol=1e-4)


def test_parity_with_the_tanh_reference(reference):
    log_std = reference["tanh.log_std_multiplier"] * reference["tanh.raw_log_std"] + reference["tanh.log_std_offset"]
    policy = (reference["tanh.mean"], np.clip(log_std, -20.0, 2.0))
    score = arb.tanh_gaussian_score(lambda obs: policy)(reference["obs"], reference["action"])
    np.testing.assert_allclose(score, reference["tanh.score"], rtol=1e-4)
    np.testing.assert_allclose(weights(reference, score, "trajectory"), reference["tanh.weight.trajectory"], rtol=1e-4)


@pytest.mark.parametrize("name", ["hopper_medium-v2", "halfcheetah_medium-v2", "walker2d_medium-v2"])
def test_density_of_the_behaviour_policy_that_d4rl_recorded(shared_data, name):
    with h5py.File(shared_data / "d4rl-excerpts" / f"{name}.hdf5") as file:
        layers = {key: (file[f"metadata/policy/{key}/weight"][()].T, file[f"metadata/policy/{key}/bias"][()])
                  for key in ("fc0", "fc1", "last_fc", "last_fc_log_std")}  # fmt: skip
        obs, action = file["observations"][()], file["actions"][()]
        recorded = file["infos/action_log_probs"][()]

    def policy(x):
        for key in ("fc0", "fc1"):
            x = np.maximum(x @ layers[key][0] + layers[key][1], 0.0)
        mean, log_std = (x @ layers[key][0] + layers[key][1] for key in ("last_fc", "last_fc_log_std"))
        return mean, np.clip(log_std, -20.0, 2.0)

    ours = arb.tanh_gaussian_score(policy, "density")(obs, action)
    # Where an action is so close to its bound that float32 lost the digits atanh needs, nothing can be compared.
    clear = (np.abs(action) < 0.999).all(1)
    assert clear.mean() > 0.5
    np.testing.assert_allclose(ours[clear], recorded[clear], atol=1e-3)


# ---- what is refused --------------------------------------------------------------------------------------------


def test_a_deterministic_policy_is_refused_with_a_way_out():
    score = arb.gaussian_score(lambda obs: (np.zeros((2, 1)), np.full(1, -np.inf)))
    with pytest.raises(DataError, match=r"deterministic.*arb.distance_score"):
        score(np.zeros((2, 1)), np.zeros((2, 1)))


@pytest.mark.parametrize("make", [arb.gaussian_score, arb.tanh_gaussian_score, arb.categorical_score])
def test_an_unknown_likelihood_is_refused(make):
    with pytest.raises(DataError, match="must be 'standard' or 'density', not 'true'"):
        make(lambda obs: obs, "true")


def test_a_categorical_score_refuses_continuous_actions():
    with pytest.raises(DataError, match="integer actions"):
        categorical_log_likelihood(np.zeros(2), np.zeros((2, 3)))


WRONG_MEANS = {
    "flat mean": ((5, 1), (5,)),
    "flat actions": ((5,), (5, 1)),
    "one mean for two dimensions": ((5, 2), (5, 1)),
    "one mean for all rows": ((5, 2), (1, 2)),
}


@pytest.mark.parametrize("make", [arb.gaussian_score, arb.tanh_gaussian_score])
@pytest.mark.parametrize(("actions", "mean"), WRONG_MEANS.values(), ids=WRONG_MEANS)
def test_a_mean_that_numpy_would_spread_over_the_actions_is_refused(make, actions, mean):
    score = make(lambda obs: (np.zeros(mean), 0.0))
    with pytest.raises(arb.DataError, match=re.escape(f"mean has shape {mean}, but the actions have shape {actions}")):
        score(np.zeros((5, 3)), np.zeros(actions))


@pytest.mark.parametrize("shape", [(5,), (3,), (5, 3), (1, 5, 2)])
def test_a_log_std_that_does_not_fit_is_refused(shape):
    score = arb.gaussian_score(lambda obs: (np.zeros((5, 2)), np.zeros(shape)))
    with pytest.raises(arb.DataError, match=re.escape(f"log_std has shape {shape}")):
        score(np.zeros((5, 3)), np.zeros((5, 2)))


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 2), (5, 1), (5, 2)])
def test_a_log_std_may_be_shared(shape):
    score = arb.gaussian_score(lambda obs: (np.zeros((5, 2)), np.full(shape, np.log(2.0))))
    np.testing.assert_allclose(score(np.zeros((5, 3)), np.full((5, 2), 2.0)), np.full(5, -0.5 - HALF_LOG_2PI))


@pytest.mark.parametrize("log_std", [0.0, np.zeros(1), np.zeros(5)], ids=["number", "one", "each"])
def test_actions_without_an_axis_of_their_own_are_scored_row_by_row(log_std):
    score = arb.gaussian_score(lambda obs: (np.zeros(5), log_std))
    np.testing.assert_allclose(score(np.zeros((5, 3)), np.arange(5.0)), -(np.arange(5.0) ** 2) / 2 - HALF_LOG_2PI)


class Distribution:
    """What some policies return; its parameters are inside."""


@pytest.mark.parametrize(
    ("answer", "said"),
    [(np.zeros((2, 1)), r"one array of shape \(2, 1\)"), (Distribution(), "Distribution"), ((1, 2, 3), "3 things")],
)
def test_a_policy_that_returns_no_pair_is_refused(answer, said):
    with pytest.raises(arb.DataError, match=rf"returned {said}, but it must return two arrays, \(mean, log_std\)"):
        arb.tanh_gaussian_score(lambda obs: answer)(np.zeros((2, 3)), np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("action", "logits", "said"),
    [
        ([0, 1], np.zeros((1, 3)), r"logits have shape \(1, 3\), but the actions have shape \(2,\)"),
        ([[0], [1]], np.zeros((2, 3)), r"must have shape \(2, 1, choices\)"),
        ([0, 3], np.zeros((2, 3)), "from 0 to 3, but the policy's logits are for 3 choices"),
        ([-1, 1], np.zeros((2, 3)), "from -1 to 1, but"),
        ([0, 1], Distribution(), "returned Distribution"),
        ([0, 1], (np.zeros((2, 3)), 0), "logits have the shapes"),
    ],
)
def test_logits_that_do_not_fit_the_actions_are_refused(action, logits, said):
    with pytest.raises(arb.DataError, match=said):
        arb.categorical_score(lambda obs: logits)(np.zeros((2, 3)), np.array(action))


def test_arrays_of_other_frameworks_become_numpy():
    torch = pytest.importorskip("torch")
    jax_numpy = pytest.importorskip("jax.numpy")
    assert as_numpy(torch.ones(2, requires_grad=True)).tolist() == [1.0, 1.0]
    assert as_numpy(jax_numpy.ones(2)).tolist() == [1.0, 1.0]


def standing(obs):
    return np.zeros((len(obs), 1)), np.zeros(1)


def test_actions_outside_the_bounds_of_a_squashed_policy_are_refused():
    score = arb.tanh_gaussian_score(standing)
    with pytest.raises(arb.DataError, match=r"run from -2 to 1.5, but the score's bounds are -1\. and 1\.: pass low="):
        score(np.zeros((2, 3)), np.array([[-2.0], [1.5]]))
    score(np.zeros((1, 3)), np.array([[1.0 + 1e-6]], np.float32))  # rounding
    wide = arb.tanh_gaussian_score(standing, low=[-2.0], high=[4.0])
    with pytest.raises(arb.DataError, match=r"from -2\.1 to -2\.1"):
        wide(np.zeros((1, 3)), np.array([[-2.1]]))
    assert wide(np.zeros((1, 3)), np.array([[1.0]])) == pytest.approx(-0.5 * np.log(2 * np.pi))  # the middle
    with pytest.raises(arb.DataError, match="both bounds"):
        arb.tanh_gaussian_score(standing, low=-2.0)


def test_a_squashed_score_takes_the_bounds_of_the_buffer():
    def refreshed(score, **bounds):
        buffer = arb.ReplayBuffer(20, arb.ARB(0.5), seed=0, **bounds)
        buffer.load_dataset({"observations": np.zeros((8, 1)), "actions": np.linspace(-2, 2, 8)[:, None],
                     "rewards": np.zeros(8), "terminals": np.ones(8)})  # fmt: skip
        buffer.refresh(score)
        return buffer.sampler.probabilities()

    told = refreshed(arb.tanh_gaussian_score(standing, low=-2.5, high=2.5))
    taken = refreshed(arb.tanh_gaussian_score(standing), action_bounds=(-2.5, 2.5))
    own = refreshed(arb.tanh_gaussian_score(standing, low=-3.0, high=3.0), action_bounds=(-2.5, 2.5))
    np.testing.assert_array_equal(told, taken)
    assert not np.allclose(own, taken)
    with pytest.raises(arb.DataError, match="or action_bounds to the buffer"):
        refreshed(arb.tanh_gaussian_score(standing))
