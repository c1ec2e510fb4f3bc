"""Files of ranks, merged into the record exactly once, and the summary of their work."""

import pytest

from levelbench.errors import RecordError
from levelbench.records import (
    Distribution,
    End,
    Evaluation,
    RankSamples,
    RecordWriter,
    key_of,
    parse_selector,
    read_record,
    summarise,
)
from levelbench.records.ranks import (
    RankWriter,
    end_failed,
    merge_ranks,
    rank_file,
    remove_old_rank_files,
    remove_rank_files,
    remove_rank_files_if_left,
    straggler_lines,
    teamwork,
)
from levelbench.records.summary import labels_of
from levelbench.report.distributed import ranks_table

TEAM = Distribution(2, "all-reduce", {"bucket_mb": 25.0}, "process", "gloo")


def observed(**values):
    return {name: ("ns" if name.endswith("time") else "1", each) for name, each in values.items()}


def written(store, head, by_rank):
    """A record with the merged files of its ranks."""
    writer = RecordWriter.create(store, head)
    for rank, values in enumerate(by_rank):
        with RankWriter(writer.path, rank) as file:
            for each in values:
                file.append(each)
    doubts = merge_ranks(writer, len(by_rank))
    writer.append(End("done", 1, {"data": 1}))
    writer.close()
    return writer.path, doubts


def test_what_ranks_observed_is_in_the_record_once_and_in_order(tmp_path, make_header):
    two = [[observed(step_time=[1, 2]), observed(step_time=[3])], [observed(step_time=[4, 5, 6])]]
    path, doubts = written(tmp_path, make_header(distribution=TEAM), two)
    record = read_record(path)
    assert not doubts
    assert list(record.ranks[0]["step_time"].values) == [1, 2, 3]
    assert list(record.ranks[1]["step_time"].values) == [4, 5, 6]
    assert record.samples == {}


def test_the_files_of_ranks_are_removed_afterwards(tmp_path, make_header):
    path, _ = written(tmp_path, make_header(distribution=TEAM), [[], []])
    remove_rank_files(path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_rank_that_left_nothing_is_a_doubt_and_not_an_end(tmp_path, make_header):
    writer = RecordWriter.create(tmp_path, make_header(distribution=TEAM))
    with RankWriter(writer.path, 0) as file:
        file.append(observed(step_time=[1]))
    (doubt,) = merge_ranks(writer, 2).values()
    writer.close()
    assert "rank 1" in doubt


def test_an_incomplete_line_of_a_rank_is_a_doubt_that_names_it(tmp_path, make_header):
    writer = RecordWriter.create(tmp_path, make_header(distribution=TEAM))
    rank_file(writer.path, 0).write_bytes(b'{"kind":"rank","rank":0,"na')
    (doubt,) = merge_ranks(writer, 1).values()
    writer.close()
    assert "line 1 is damaged" in doubt


def test_a_line_of_another_rank_is_refused(tmp_path, make_header):
    writer = RecordWriter.create(tmp_path, make_header(distribution=TEAM))
    with RankWriter(writer.path, 1) as file:
        file.append(observed(step_time=[1]))
    rank_file(writer.path, 1).rename(rank_file(writer.path, 0))
    (doubt,) = merge_ranks(writer, 1).values()
    writer.close()
    assert "not of rank 0" in doubt


def test_rank_files_are_not_records(tmp_path, make_header):
    writer = RecordWriter.create(tmp_path, make_header(distribution=TEAM))
    with RankWriter(writer.path, 0) as file:
        file.append(observed(step_time=[1]))
    writer.close()
    with pytest.raises(RecordError):
        read_record(rank_file(writer.path, 0))


def test_one_quantity_in_two_units_is_damage(tmp_path, make_header):
    writer = RecordWriter.create(tmp_path, make_header(distribution=TEAM))
    for unit in ("B", "ns"):
        writer.append(RankSamples(0, "sent", unit, [1]))
    writer.close()
    with pytest.raises(RecordError, match="in B and in ns"):
        read_record(writer.path)


def test_the_key_of_a_run_of_one_process_never_changes(make_specification):
    alone, team = make_specification(), make_specification(distribution=TEAM)
    assert key_of(alone) != key_of(team)
    # The key of this specification before there were distributions.
    assert key_of(alone) == "a78efd3856efbd714a7119778852197a501acd5742de36ffc70cd556bb904afb"


def test_runs_are_selected_by_the_words_of_their_distribution(tmp_path, make_run, make_header):
    path = make_run(tmp_path, make_header(distribution=TEAM))
    alone = make_run(tmp_path, make_header())
    pair, single = summarise(read_record(path)), summarise(read_record(alone))
    for text, run in (("digits[ranks=2]", pair), ("[scheme=all-reduce,engine=process]", pair), ("[ranks=1]", single)):
        selector = parse_selector(text)
        assert [each for each in (pair, single) if selector.matches(each)] == [run]
    assert parse_selector("[scheme.bucket_mb=25]").matches(pair)
    assert pair.specification.distribution == TEAM


def test_a_label_has_ranks_first_and_other_words_that_differ(make_specification):
    top = Distribution(2, "top-k", {"ratio": 0.01}, "process", "gloo")
    alone, dense, sparse = (make_specification(distribution=each) for each in (None, TEAM, top))
    assert labels_of([alone, dense]) == ["digits[ranks=1]", "digits[ranks=2]"]
    assert labels_of([dense, sparse]) == ["digits[scheme=all-reduce]", "digits[scheme=top-k]"]


def test_teamwork_separates_computation_communication_and_waiting(tmp_path, make_header):
    # Rank 1 computes 30 where rank 0 computes 10 and waits 20 of the 25 that it spends in communication.
    ranks = [
        [observed(step_time=[35, 35], communicate_time=[25, 25], sent=[8, 8], messages=[2, 2], sent_predicted=[8])],
        [observed(step_time=[35, 35], communicate_time=[5, 5], sent=[8, 8], messages=[2, 2], sent_predicted=[8])],
    ]
    found = teamwork(read_record(written(tmp_path, make_header(distribution=TEAM), ranks)[0]))
    assert found.communicate_share == pytest.approx(30 / 70)
    assert found.waiting_share == pytest.approx(20 / 70)
    assert found.imbalance == pytest.approx(30 / 20)
    assert (found.sent_bytes, found.predicted_bytes, found.messages) == (8, 8, 2)
    assert found.predicted_messages is None


def test_teamwork_counts_a_server_by_the_workers_steps(tmp_path, make_header):
    ranks = [
        [observed(step_time=[1, 1, 1, 1], communicate_time=[0, 0, 0, 0], sent=[4, 4, 4, 4])],
        [observed(sent_serving=[8, 8])],
    ]
    found = teamwork(read_record(written(tmp_path, make_header(distribution=TEAM), ranks)[0]))
    assert found.sent_bytes == 4
    assert found.step_s == pytest.approx(1e-9)


def test_what_a_framework_sends_by_itself_is_not_counted_as_nothing(tmp_path, make_header):
    ranks = [[observed(step_time=[1], communicate_time=[0], sent=[0], messages=[0], sent_predicted=[8], counted=[0])]]
    found = teamwork(read_record(written(tmp_path, make_header(distribution=TEAM), ranks)[0]))
    assert (found.sent_bytes, found.messages, found.predicted_bytes) == (None, None, 8)


def test_the_communication_of_a_framework_that_communicates_by_itself_is_unknown(tmp_path, make_header):
    ranks = [[observed(step_time=[35, 45], communicate_time=[0, 0], counted=[0.0])] for _ in range(2)]
    record = read_record(written(tmp_path, make_header(distribution=TEAM), ranks)[0])
    found = teamwork(record)
    assert (found.communicate_share, found.waiting_share, found.imbalance) == (None, None, None)
    assert found.step_s == pytest.approx(40e-9)
    column = [each.key for each in ranks_table(record).columns].index("communicate_share")
    assert {row[column].reason for row in ranks_table(record).rows} == {
        "not measured: the framework communicates within its own forward and backward passes"
    }


def test_a_scheme_that_should_send_but_does_not_is_shown_to_send_nothing(tmp_path, make_header):
    ranks = [[observed(step_time=[1], communicate_time=[0], sent=[0], messages=[0], sent_predicted=[8], counted=[1])]]
    found = teamwork(read_record(written(tmp_path, make_header(distribution=TEAM), ranks)[0]))
    assert (found.sent_bytes, found.predicted_bytes) == (0, 8)


def test_no_waiting_is_claimed_if_ranks_do_not_step_together(tmp_path, make_header):
    ranks = [
        [observed(step_time=[35], communicate_time=[25], lockstep=[0])],
        [observed(step_time=[35], communicate_time=[5], lockstep=[0])],
    ]
    found = teamwork(read_record(written(tmp_path, make_header(distribution=TEAM), ranks)[0]))
    assert found.waiting_share is None
    assert found.communicate_share == pytest.approx(30 / 70)


def computing(*work_ns, talk_ns=50, steps=40):
    """Ranks whose steps take their work and what is left of the slowest one's."""
    slowest = max(work_ns) + talk_ns
    return [[observed(step_time=[slowest] * steps, communicate_time=[slowest - own] * steps)] for own in work_ns]


def test_the_rank_that_the_others_wait_for_is_named(tmp_path, make_header):
    ranks = computing(100, 100, 140)
    found = teamwork(read_record(written(tmp_path, make_header(distribution=TEAM), ranks)[0]))
    assert found.stragglers == ((2, pytest.approx(1.4)),)
    (line,) = straggler_lines("digits[ranks=3]", [found, found])
    assert line.startswith("digits[ranks=3]: the others wait for rank 2, which computes 1.4 times as long")


@pytest.mark.parametrize("ranks", [computing(100, 105), computing(100, 200, steps=10)], ids=["even", "too few steps"])
def test_ranks_that_are_not_clearly_slower_are_not_named(tmp_path, make_header, ranks):
    assert teamwork(read_record(written(tmp_path, make_header(distribution=TEAM), ranks)[0])).stragglers == ()


def test_a_rank_that_was_slow_in_one_of_three_runs_is_not_named(tmp_path, make_header):
    slow, even = (
        teamwork(read_record(written(tmp_path / name, make_header(distribution=TEAM), ranks)[0]))
        for name, ranks in (("slow", computing(100, 200)), ("even", computing(100, 100)))
    )
    assert straggler_lines("digits", [slow, even, even]) == []


def test_the_peak_memory_of_a_team_is_that_of_its_largest_rank(tmp_path, make_header):
    writer = RecordWriter.create(tmp_path, make_header(distribution=TEAM))
    with RankWriter(writer.path, 0) as file:
        file.append(observed(step_time=[1]))
    merge_ranks(writer, 1)
    after = {"team": {"peak_memory_bytes_by_rank": [10, 30, None]}}
    writer.append(End("done", 1, {"data": 1}, environment_after=after))
    writer.close()
    assert teamwork(read_record(writer.path)).peak_memory_bytes == 30


def test_teamwork_of_one_process_is_none(tmp_path, make_run, make_header):
    assert teamwork(read_record(make_run(tmp_path, make_header()))) is None


def interrupted(store, head, *events):
    """A record without an end, and a file of rank 0."""
    writer = RecordWriter.create(store, head)
    for event in events:
        writer.append(event)
    with RankWriter(writer.path, 0) as file:
        file.append(observed(step_time=[1, 2]))
    writer.close()
    return writer.path


def test_a_damaged_file_of_a_rank_is_left_out_and_stays(tmp_path, make_header):
    writer = RecordWriter.create(tmp_path, make_header(distribution=TEAM))
    for rank in range(2):
        with RankWriter(writer.path, rank) as file:
            file.append(observed(step_time=[rank]))
    with rank_file(writer.path, 1).open("ab") as file:
        file.write(b'{"kind":"rank","rank":1,"na')
    missing = merge_ranks(writer, 2)
    writer.append(End("done", 1, {"data": 1}))
    writer.close()
    remove_rank_files(writer.path, but=missing)
    assert list(missing) == [1]
    assert list(read_record(writer.path).ranks) == [0]
    assert not rank_file(writer.path, 0).exists()
    assert rank_file(writer.path, 1).exists()


def test_a_record_that_ranks_left_without_an_end_gets_one(tmp_path, make_header):
    phases = {"data": 3, "forward": 4}
    path = interrupted(tmp_path, make_header(distribution=TEAM), Evaluation(7, 1, 0.5, 8, {}, None, phases))
    assert end_failed(path, "rank 1: it raised")
    record = read_record(path)
    assert (record.status, record.end.error, record.end.t_ns) == ("failed", "rank 1: it raised", 7)


@pytest.mark.parametrize("what", ["done", "torn", "gone"])
def test_a_record_that_cannot_get_an_end_is_not_changed(tmp_path, make_header, what):
    path = interrupted(tmp_path, make_header(distribution=TEAM), *[End("done", 1, {"data": 1})] * (what == "done"))
    with path.open("ab") as file:
        file.write(b'{"kind":"ev' * (what == "torn"))
    if what == "gone":
        path.unlink()
    before = path.read_bytes() if path.exists() else None
    assert not end_failed(path, "rank 1: it raised")
    assert (path.read_bytes() if path.exists() else None) == before


def test_files_of_ranks_of_a_failed_run_are_removed(tmp_path, make_header):
    failed = interrupted(tmp_path, make_header(distribution=TEAM))
    done = interrupted(tmp_path, make_header(distribution=TEAM), End("done", 1, {"data": 1}))
    for path in (failed, done):
        remove_rank_files_if_left(path)
    assert not rank_file(failed, 0).exists()
    assert rank_file(done, 0).exists()


def test_a_run_removes_files_of_ranks_of_earlier_runs_of_its_key_and_seed(tmp_path, make_header):
    head = make_header(distribution=TEAM)
    left, done, new = (
        interrupted(tmp_path, make_header(distribution=TEAM), *events)
        for events in ([], [End("done", 1, {"data": 1})], [])
    )
    remove_old_rank_files(new, head.key, head.seed)
    assert [rank_file(path, 0).exists() for path in (left, done, new)] == [False, True, True]
