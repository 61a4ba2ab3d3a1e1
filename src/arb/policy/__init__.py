"""Trained policies with NumPy alone: from an observation of the environment to an action of the environment."""

from arb.policy.exported import FILES, Policy, export_policy, load_policy

__all__ = ["FILES", "Policy", "export_policy", "load_policy"]
