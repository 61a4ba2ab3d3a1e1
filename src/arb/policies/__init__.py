"""Trained policies with NumPy alone: from an observation of the environment to an action of the environment."""

from arb.policies.export import Policy, export_policy, load_policy

__all__ = ["Policy", "export_policy", "load_policy"]
