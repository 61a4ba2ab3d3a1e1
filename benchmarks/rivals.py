"""IQL and Cal-QL in eager PyTorch, in the style of most research code: the rivals of benchmarks/updates.py."""

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
