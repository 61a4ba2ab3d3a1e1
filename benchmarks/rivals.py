"""IQL, Cal-QL and FQL in eager PyTorch, in the style of most research code: the rivals of benchmarks/updates.py."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 256


def mlp(n_in: int, layers: int, n_out: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for i in range(layers):
        parts += [nn.Linear(n_in if i == 0 else WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(WIDTH, n_out))


class TwinQ(nn.Module):
    """Two critics."""

    def __init__(self, n_in: int, layers: int):
        super().__init__()
        self.first, self.second = mlp(n_in, layers, 1), mlp(n_in, layers, 1)

    def both(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The two values."""
        x = torch.cat([obs, action], -1)
        return self.first(x).squeeze(-1), self.second(x).squeeze(-1)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """The smaller one."""
        return torch.min(*self.both(obs, action))


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, rate: float = 0.005) -> None:
    for t, s in zip(target.parameters(), source.parameters(), strict=True):
        t.mul_(1 - rate).add_(s, alpha=rate)


def step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


class TorchIQL:
    """One update at a time, losses read as Python numbers."""

    def __init__(self, obs_dim: int, action_dim: int):
        self.q, self.value = TwinQ(obs_dim + action_dim, 2), mlp(obs_dim, 2, 1)
        self.policy, self.log_std = mlp(obs_dim, 2, action_dim), nn.Parameter(torch.zeros(action_dim))
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.q_adam = torch.optim.Adam(self.q.parameters(), 3e-4)
        self.value_adam = torch.optim.Adam(self.value.parameters(), 3e-4)
        self.policy_adam = torch.optim.Adam([*self.policy.parameters(), self.log_std], 3e-4)

    def update(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, going: Tensor, _: Tensor
    ) -> dict[str, float]:
        """Value, critics, target, policy."""
        with torch.no_grad():
            next_value, q_data = self.value(next_obs).squeeze(-1), self.target(obs, action)
        gap = q_data - self.value(obs).squeeze(-1)
        value_loss = torch.mean(torch.abs(0.7 - (gap < 0).float()) * gap**2)
        step(self.value_adam, value_loss)
        y = reward + 0.99 * going * next_value
        q_loss = sum(functional.mse_loss(q, y) for q in self.q.both(obs, action)) / 2
        step(self.q_adam, q_loss)
        follow(self.target, self.q)
        weight = torch.exp(3.0 * gap.detach()).clamp(max=100.0)
        normal = torch.distributions.Normal(
            torch.tanh(self.policy(obs)), torch.exp(self.log_std.clamp(-20.0, 2.0)), validate_args=False
        )
        policy_loss = torch.mean(weight * -normal.log_prob(action).sum(-1))
        step(self.policy_adam, policy_loss)
        return {"value": value_loss.item(), "q": q_loss.item(), "policy": policy_loss.item()}


class TorchCalQL:
    """Cal-QL's locomotion update, the fan in one piece and the policy run on every copy of a state."""

    def __init__(self, obs_dim: int, action_dim: int, layers: int = 3, actions: int = 10):
        self.q, self.policy = TwinQ(obs_dim + action_dim, layers), mlp(obs_dim, 3, 2 * action_dim)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.actions, self.action_dim = actions, action_dim
        self.first_adam = torch.optim.Adam(self.q.first.parameters(), 3e-4)
        self.second_adam = torch.optim.Adam(self.q.second.parameters(), 3e-4)
        self.policy_adam = torch.optim.Adam(self.policy.parameters(), 3e-5)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], 3e-5)

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """A squashed action and its log-density."""
        mean, raw = self.policy(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, torch.exp((raw - 1.0).clamp(-20.0, 2.0)), validate_args=False)
        x = normal.rsample()
        slope = 2.0 * (math.log(2.0) - x - functional.softplus(-2.0 * x))
        return torch.tanh(x), (normal.log_prob(x) - slope).sum(-1)

    def update(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, going: Tensor, bound: Tensor
    ) -> dict[str, float]:
        """All losses first, then all steps."""
        new_action, log_prob = self.sample(obs)
        alpha_loss = -(self.log_alpha * (log_prob - self.action_dim).detach()).mean()
        policy_loss = (self.log_alpha.exp().detach() * log_prob - self.q(obs, new_action)).mean()
        q_loss = self.q_loss(obs, action, reward, next_obs, going, bound)
        step(self.alpha_adam, alpha_loss)
        step(self.policy_adam, policy_loss)
        self.first_adam.zero_grad()
        self.second_adam.zero_grad()
        q_loss.backward()
        self.first_adam.step()
        self.second_adam.step()
        follow(self.target, self.q)
        return {"q": q_loss.item(), "policy": policy_loss.item(), "alpha": alpha_loss.item()}

    def q_loss(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, going: Tensor, bound: Tensor
    ) -> Tensor:
        """TD errors and the conservative term of both critics."""
        n = self.actions
        with torch.no_grad():
            y = reward + 0.99 * going * self.target(next_obs, self.sample(next_obs)[0])
            many, many_next = (x.unsqueeze(1).expand(-1, n, -1) for x in (obs, next_obs))
            current, current_log_prob = self.sample(many)
            following, next_log_prob = self.sample(many_next)
            uniform = torch.empty_like(current).uniform_(-1.0, 1.0)
        density = math.log(0.5) * self.action_dim
        loss: Tensor = torch.zeros(())
        data = self.q.both(obs, action)
        fans = [self.q.both(many, a) for a in (uniform, following, current)]
        for k in range(2):
            flat, after, now = (fan[k] for fan in fans)
            after, now = (torch.maximum(x, bound.unsqueeze(1)) for x in (after, now))
            joined = torch.cat([flat - density, after - next_log_prob, now - current_log_prob], 1)
            gap = (torch.logsumexp(joined, 1) - data[k]).mean()
            loss = loss + functional.mse_loss(data[k], y) + 10.0 * gap
        return loss


class Normalised(nn.Sequential):
    """A critic with layer normalisation before every ReLU."""

    def __init__(self, n_in: int, hidden: tuple[int, ...]):
        parts: list[nn.Module] = []
        for n, m in zip((n_in, *hidden), hidden, strict=False):
            parts += [nn.Linear(n, m), nn.LayerNorm(m, eps=1e-6), nn.ReLU()]
        super().__init__(*parts, nn.Linear(hidden[-1], 1))


class TorchFQL:
    """FQL, and with a chunk above 1 QC-FQL: all losses first, then all steps.

    `noise` are the three normal draws and the times of an update, for whoever compares numbers.
    """

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: tuple[int, ...] = (512,) * 4, chunk: int = 1, alpha: float = 10.0,
        rates: tuple[float, float, float] = (3e-4, 3e-4, 0.005),
    ):  # fmt: skip
        out, (actor_rate, critic_rate, self.tau) = action_dim * chunk, rates
        self.q = nn.ModuleList(Normalised(obs_dim + out, hidden) for _ in range(2))
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.flow, self.policy = (self.network(obs_dim + out + extra, hidden, out) for extra in (1, 0))
        self.q_adam = torch.optim.Adam(self.q.parameters(), critic_rate)
        self.flow_adam = torch.optim.Adam(self.flow.parameters(), actor_rate)
        self.policy_adam = torch.optim.Adam(self.policy.parameters(), actor_rate)
        self.chunk, self.out, self.alpha = chunk, out, alpha

    @staticmethod
    def network(n_in: int, hidden: tuple[int, ...], n_out: int) -> nn.Sequential:
        parts: list[nn.Module] = []
        for n, m in zip((n_in, *hidden), hidden, strict=False):
            parts += [nn.Linear(n, m), nn.ReLU()]
        return nn.Sequential(*parts, nn.Linear(hidden[-1], n_out))

    def update(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, going: Tensor, _: Tensor,
        valid: Tensor | None = None, noise: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Critics, the flow, the one-step actor, the target."""
        n = len(reward)
        known = torch.ones(n, self.chunk) if valid is None else valid.float()
        data = action.reshape(n, self.out)
        first, clone_noise, t, start = noise or (
            torch.randn(n, self.out), torch.randn(n, self.out), torch.rand(n, 1), torch.randn(n, self.out)
        )  # fmt: skip
        with torch.no_grad():
            after = self.policy(torch.cat([next_obs, first], -1)).clamp(-1, 1)
            after = torch.cat([next_obs, after], -1)
            y = reward + 0.99 * going * sum(q(after).squeeze(-1) for q in self.target) / 2
            x = start
            for k in range(10):
                x = x + self.flow(torch.cat([obs, x, torch.full((n, 1), k / 10)], -1)) / 10
            cloned = x.clamp(-1, 1)
        here = torch.cat([obs, data], -1)
        q_loss = sum((known[:, -1] * (q(here).squeeze(-1) - y) ** 2).mean() for q in self.q) / 2
        x = (1 - t) * clone_noise + t * data
        error = (self.flow(torch.cat([obs, x, t], -1)) - (data - clone_noise)) ** 2
        flow_loss = (error.reshape(n, self.chunk, -1) * known[..., None]).mean()
        own = self.policy(torch.cat([obs, start], -1))
        distilled = functional.mse_loss(own, cloned)
        value = sum(q(torch.cat([obs, own.clamp(-1, 1)], -1)).squeeze(-1) for q in self.q) / 2
        policy_loss = self.alpha * distilled - value.mean()
        self.policy_adam.zero_grad()
        policy_loss.backward()  # its gradients of the critics are dropped by their own step
        step(self.q_adam, q_loss)
        step(self.flow_adam, flow_loss)
        self.policy_adam.step()
        follow(self.target, self.q, self.tau)
        return {
            "critic_loss": q_loss.item(), "flow_loss": flow_loss.item(), "distillation_loss": distilled.item(),
            "policy_loss": policy_loss.item(),
        }  # fmt: skip
