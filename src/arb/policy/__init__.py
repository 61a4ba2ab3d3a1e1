"""Trained policies with NumPy alone: from an observation of the environment to an action of the environment."""

from arb.policy.exported import Policy, export_policy, load_policy

__all__ = ["Policy", "export_policy", "load_policy"]
