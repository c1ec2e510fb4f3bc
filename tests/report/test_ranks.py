"""The ranks of a run as tables."""

from types import SimpleNamespace

from levelbench.records.schema import Distribution, Samples
from levelbench.report.distributed import divergence_table, operations_table, ranks_table, staleness_table
from levelbench.report.tables import Absent, Number, Text, lay_out


def record(*ranks):
    named = {
        rank: {name: Samples(name, "ns" if name.endswith("time") else "1", values) for name, values in each.items()}
        for rank, each in enumerate(ranks)
    }
    team = Distribution(len(ranks), "async-parameter-server", {}, "process", "gloo")
    evaluations = [SimpleNamespace(epoch=1.0), SimpleNamespace(epoch=2.0)]
    header = SimpleNamespace(specification=SimpleNamespace(distribution=team))
    return SimpleNamespace(ranks=named, end=None, header=header, evaluations=evaluations)


WORKER = {"step_time": [10, 20, 30], "communicate_time": [5, 5, 5], "sent": [8, 8, 8], "messages": [1, 1, 1]}
SERVER = {"sent_serving": [48.0], "messages_serving": [6.0], "staleness": [0, 0, 1, 3], "divergence": [0.5, 0.25]}


def test_a_worker_has_times_and_a_server_what_it_sends():
    worker, server = ranks_table(record(WORKER, SERVER)).rows
    assert worker[1:4] == (Text("worker"), Number(20e-9), Number(0.25))
    assert server[1] == Text("server")
    assert isinstance(server[2], Absent)
    # 48 in all, over the three steps that the worker made.
    assert server[4] == Number(16.0)


def test_one_process_has_no_ranks_to_show():
    alone = SimpleNamespace(
        ranks={}, header=SimpleNamespace(specification=SimpleNamespace(distribution=None)), evaluations=[]
    )
    makers = (ranks_table, operations_table, staleness_table, divergence_table)
    assert [make(alone) for make in makers] == [None] * 4


def test_operations_are_summed_over_ranks_the_one_that_sends_most_first():
    first = {"calls:barrier:evaluate": [1], "sent:barrier:evaluate": [1], "time:barrier:evaluate": [1e9]}
    second = {"calls:all_reduce:communicate": [5], "sent:all_reduce:communicate": [400]}
    table = operations_table(record({**WORKER, **first, **second}, {**WORKER, **second}))
    assert [row[0].text for row in table.rows] == ["all-reduce", "barrier"]
    assert (table.rows[0][2].value, table.rows[0][3].value) == (10, 800)
    assert table.rows[1][5].value == 1.0


def test_staleness_is_shown_as_its_distribution():
    table = staleness_table(record(WORKER, SERVER))
    assert [(row[0].text, row[1].value) for row in table.rows] == [("0", 2), ("1", 1), ("2", 0), ("3", 1)]
    assert sum(row[2].value for row in table.rows) == 1


def test_a_long_tail_of_staleness_is_put_into_a_dozen_rows():
    table = staleness_table(record({**WORKER, "staleness": list(range(100))}))
    assert len(table.rows) <= 12
    assert sum(row[1].value for row in table.rows) == 100
    assert lay_out(table)


def test_the_drift_of_replicas_is_shown_by_evaluation():
    table = divergence_table(record(WORKER, SERVER))
    assert [(row[0].value, row[1].value) for row in table.rows] == [(1.0, 0.5), (2.0, 0.25)]
