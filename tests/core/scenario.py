"""Moved to tests.support.scenario."""

from tests.support.scenario import Cluster as Cluster
from tests.support.scenario import cluster as cluster
from tests.support.scenario import gang as gang
from tests.support.scenario import with_annotations as with_annotations
