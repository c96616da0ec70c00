"""The package's public surface."""

import workloads


def test_exports_are_sorted_and_exist() -> None:
    assert sorted(workloads.__all__) == workloads.__all__
    assert [name for name in workloads.__all__ if not hasattr(workloads, name)] == []


def test_every_error_of_the_package_is_a_workload_error() -> None:
    errors = [getattr(workloads, name) for name in workloads.__all__ if name.endswith("Error")]
    assert all(issubclass(error, workloads.WorkloadError) for error in errors)
    assert len(errors) == 5
