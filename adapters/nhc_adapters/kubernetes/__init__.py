"""The Kubernetes adapter: node conditions, events, taints, cordons and drains, and the controller that sets them.

Who should read what: `access` and `client` talk to the API server; `conditions`, `events` and `reporter` are
the agent's side, which says what a node is; `marks`, `drain`, `adapter` and `controller` are the cluster's
side, which acts on it; `vocabulary` says in which words. Nothing here is imported by the local path.
"""
