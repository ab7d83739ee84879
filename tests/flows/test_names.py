"""A first line that says what to do."""

from __future__ import annotations

from flows.names import advice
from gogh_core.errors import ClusterUnavailable, InvalidInput


def test_the_first_line_of_a_failure_is_what_to_do():
    error = ClusterUnavailable("no answer in 10 s", where="slurm", todo="is slurmctld running?")
    assert advice(error).startswith("To do: is slurmctld running?")
    assert "slurm: no answer in 10 s" in advice(error)
    assert "To do: " in advice(InvalidInput("gap is 2"))
