"""Lineage: which sessions belong together, and what is removed together."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from maintenance.dialects.base import LineageRow
from maintenance.lineage import Forest, Kind, with_delegate_markers


def row(key: str, parent: str | None = None, **facts: Any) -> LineageRow:
    values: dict[str, Any] = {
        "source": "cli",
        "started_at": 1.0,
        "ended_at": None,
        "ended": False,
        "end_reason": None,
        "session_key": None,
        "last_activity_at": None,
        "branched_from": None,
        "delegate_from": None,
        "reset_from": None,
        **facts,
    }
    return LineageRow(id=key, parent_id=parent, **values)


def compressed(key: str, parent: str | None = None, **facts: Any) -> LineageRow:
    return row(key, parent, ended=True, ended_at=2.0, end_reason="compression", **facts)


def test_a_child_of_a_compressed_session_continues_it_unless_a_tool_made_it() -> None:
    forest = Forest([compressed("a"), row("b", "a"), row("t", "a", source="tool")])
    assert (forest.kind("a"), forest.kind("b"), forest.kind("t")) == (Kind.ROOT, Kind.CONTINUATION, Kind.OTHER)
    assert forest.segments("b") == ("a", "b")
    assert (forest.root("b"), forest.tip("a")) == ("a", "b")


def test_a_marker_that_names_another_session_does_not_stop_a_continuation() -> None:
    forest = Forest([row("z"), compressed("a", "z", branched_from="z"), row("b", "a", branched_from="z")])
    assert (forest.kind("a"), forest.kind("b")) == (Kind.BRANCH, Kind.CONTINUATION)
    assert forest.segments("z") == ("z",)


def test_branches_delegates_and_resets_are_told_by_markers_or_by_the_old_rules() -> None:
    forest = Forest(
        [
            row("a", ended=True, ended_at=5.0, end_reason="branched", session_key="k"),
            row("old-branch", "a", started_at=5.0),
            row("earlier", "a", started_at=4.0),
            row("d", "a", delegate_from="a"),
            row("lost", None, delegate_from="gone"),
            row("r", ended=True, ended_at=5.0, end_reason="idle", session_key="k"),
            row("after", "r", session_key="k"),
            row("new", "a", reset_from="a"),
        ]
    )
    kinds = {key: forest.kind(key) for key in ("old-branch", "earlier", "d", "lost", "after", "new", "not in the file")}
    assert kinds == {
        "old-branch": Kind.BRANCH,
        "earlier": Kind.OTHER,
        "d": Kind.DELEGATE,
        "lost": Kind.ROOT,
        "after": Kind.RESET,
        "new": Kind.RESET,
        "not in the file": Kind.ROOT,
    }
    assert (forest.owner("d"), forest.owner("lost")) == ("a", None)


def test_in_files_older_than_markers_an_unexplained_child_is_a_delegate() -> None:
    rows = [row("a"), row("d", "a", source="subagent"), compressed("c"), row("e", "c"), row("lost", "gone")]
    forest = Forest(with_delegate_markers(rows))
    kinds = {key: forest.kind(key) for key in ("a", "d", "e", "lost")}
    assert kinds == {"a": Kind.ROOT, "d": Kind.DELEGATE, "e": Kind.CONTINUATION, "lost": Kind.ROOT}


def test_the_tip_prefers_a_compressed_child_then_a_live_one_and_never_needs_clocks() -> None:
    stale = row("stale", "a", ended=True, started_at=99.0, last_activity_at=99.0)
    live = row("live", "a", started_at=0.5)
    assert Forest([compressed("a"), stale, live]).tip("a") == "live"
    assert Forest([compressed("a"), stale, live, compressed("c", "a"), row("d", "c")]).tip("a") == "d"


def test_chains_of_a_thousand_segments_are_followed_to_their_end() -> None:
    rows = [compressed("0")] + [compressed(str(n), str(n - 1)) for n in range(1, 1000)] + [row("tip", "999")]
    forest = Forest(reversed(rows))
    assert (forest.tip("500"), forest.root("tip"), len(forest.segments("0"))) == ("tip", "0", 1001)


def test_a_delegate_goes_with_its_owner_and_takes_its_own_delegates_along() -> None:
    forest = Forest(
        [
            compressed("a"),
            row("b", "a"),
            row("d", "a", delegate_from="a"),
            compressed("e", "d", delegate_from="d"),
            row("f", "e", delegate_from="d"),
            row("branch", "b", branched_from="b"),
        ]
    )
    assert forest.units(["b", "a"], {}).removable[0].ids == ("a", "b", "d", "e", "f")
    kept = forest.units(["a", "b"], {"f": "it is pinned"}).kept
    assert [(item.session_id, item.reason) for item in kept] == [("f", "it is pinned")]


def test_half_a_conversation_is_never_removed() -> None:
    forest = Forest([compressed("a"), row("b", "a")])
    units = forest.units(["a"], {})
    assert units.removable == ()
    assert [item.reason for item in units.kept] == ["another part of the same conversation was not selected"]
    assert forest.units(["a"], {}, whole=False).ids == ("a", "b")


def test_a_delegate_chosen_beside_its_owner_is_removed_once() -> None:
    forest = Forest([row("a"), row("d", "a", delegate_from="a")])
    assert [unit.ids for unit in forest.units(["d", "a"], {}).removable] == [("a", "d")]


def test_a_moved_title_comes_only_from_earlier_segments() -> None:
    forest = Forest([row("z"), compressed("a", "z", branched_from="z"), compressed("b", "a"), row("c", "b")])
    assert forest.compression_ancestors("c") == {"a", "b"}


KEYS = [str(number) for number in range(8)]
names = st.one_of(st.none(), st.sampled_from([*KEYS, "gone"]))
rows_strategy = st.lists(
    st.builds(
        lambda key, parent, reason, marker, source, start, stamp: row(
            key,
            parent,
            end_reason=reason,
            ended=reason is not None,
            ended_at=None if reason is None else 5.0,
            source=source,
            started_at=start,
            last_activity_at=stamp,
            **({} if marker is None else {marker[0]: marker[1]}),
        ),
        st.sampled_from(KEYS),
        names,
        st.sampled_from([None, "compression", "branched", "idle"]),
        st.one_of(
            st.none(),
            st.tuples(st.sampled_from(["branched_from", "delegate_from", "reset_from"]), st.sampled_from(KEYS)),
        ),
        st.sampled_from(["cli", "tool"]),
        st.sampled_from([None, 1.0, 7.0]),
        st.sampled_from([None, 3.0]),
    ),
    unique_by=lambda item: item.id,
    max_size=8,
)


@given(rows_strategy, st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(KEYS)))
def test_any_forest_with_cycles_is_sorted_into_units_that_go_or_stay_whole(
    rows: list[LineageRow], chosen: set[str], staying: set[str]
) -> None:
    forest = Forest(rows)
    order = sorted(chosen)
    units = forest.units(order, dict.fromkeys(staying, "must stay"))
    gone = set(units.ids)
    assert not gone & staying
    for key in KEYS:
        segments = forest.segments(key)
        assert key in segments and len(set(segments)) == len(segments)
        assert forest.segments(segments[0]) == segments and forest.tip(key) in segments
        assert forest.tip(key) == forest.tip(segments[-1])
        assert key not in forest.compression_ancestors(key)
        assert forest.compression_ancestors(key) <= set(segments)
        # All segments of a conversation, or none.
        assert len(gone & set(segments)) in (0, len(segments))
        # A delegate never outlives its owner.
        owner = forest.owner(key)
        if owner in gone:
            assert key in gone
    # Nothing goes that was not chosen, but for the delegates of what was.
    assert gone <= chosen | set(forest.delegates(gone & chosen))
    # Every chosen session is accounted for.
    named = {member for unit in units.removable for member in unit.ids} | {
        member for item in units.kept for member in item.unit.segments
    }
    assert chosen <= named
