"""Every test here may ask for `kube`: its own corner of a real control plane."""

from tests.support.kube import kube, plane

__all__ = ["kube", "plane"]
