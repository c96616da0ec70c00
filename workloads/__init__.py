"""What is sent to an engine and what is measured of it: recorded traffic, profiles, loads, the replay and its metrics.

Knows neither how engines are launched nor which configuration is good. Everything that callers need is here; the
modules below are free to change.
"""

from workloads.errors import LoadError, ProfileError, WorkloadError, WorkloadFileError, WorkloadFormatError
from workloads.flat import flat_metrics
from workloads.formats.native import native_line
from workloads.inspection import Inspection, Traffic, inspect_stream, inspect_traffic
from workloads.load import Load, parse_loads
from workloads.metrics import BlockMetrics, Distribution, ReplayMetrics, summarise
from workloads.outcome import RequestOutcome
from workloads.profile import Block, Profile, split_profiles
from workloads.quantiles import Quantiles
from workloads.read import RequestStream, read_workload, stream_requests
from workloads.replay import ReplayResult, replay
from workloads.request import Recorded, RejectedLine, Request, Workload
from workloads.sampling import SampleDifference, read_sample
from workloads.shape import Shape
from workloads.validity import client_problems
from workloads.wire import Target

__all__ = [
    "Block",
    "BlockMetrics",
    "Distribution",
    "Inspection",
    "Load",
    "LoadError",
    "Profile",
    "ProfileError",
    "Quantiles",
    "Recorded",
    "RejectedLine",
    "ReplayMetrics",
    "ReplayResult",
    "Request",
    "RequestOutcome",
    "RequestStream",
    "SampleDifference",
    "Shape",
    "Target",
    "Traffic",
    "Workload",
    "WorkloadError",
    "WorkloadFileError",
    "WorkloadFormatError",
    "client_problems",
    "flat_metrics",
    "inspect_stream",
    "inspect_traffic",
    "native_line",
    "parse_loads",
    "read_sample",
    "read_workload",
    "replay",
    "split_profiles",
    "stream_requests",
    "summarise",
]
