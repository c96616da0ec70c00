"""Recording live traffic: a streaming reverse proxy in front of an engine, and the native workload file that it fills.

Two processes. The proxy forwards bytes and notes when they passed; it parses and writes nothing. The writer gets each
finished exchange through a pipe, makes the record and appends it, so that neither a slow disk nor a slow pattern is
ever on the path of a request, and so that the death of the proxy costs nothing that had been handed over.
"""

from workloads.recorder.files import put_in_order
from workloads.recorder.service import Recorded, record
from workloads.recorder.settings import RecordError, RecordSettings, parse_listen

__all__ = ["RecordError", "RecordSettings", "Recorded", "parse_listen", "put_in_order", "record"]
