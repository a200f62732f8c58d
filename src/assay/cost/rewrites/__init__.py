"""Rewrites of a tape that several techniques share: precision, experts, replicas."""
