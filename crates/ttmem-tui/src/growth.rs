//! Growth of groups of buffers since their view was opened.

use crate::lists::group_key;
use std::collections::BTreeMap;
use ttmem_core::Snapshot;
use ttmem_core::detail::{BufferGrouping, BufferQuery};
use ttmem_core::snapshot::BufferGroup;

/// Most lists and most groups of a list that are kept; of further ones, growth is not shown.
const MAX_LISTS: usize = 8;
const MAX_GROUPS: usize = 10_000;

/// The bytes of each group when its list was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    lists: Vec<GroupList>,
}

/// The groups of a list when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupList {
    grouping: BufferGrouping,
    filter: String,
    /// Whether all groups were known, so that any other one is new.
    is_complete: bool,
    bytes: BTreeMap<String, u64>,
}

impl Growth {
    /// Keeps the groups of a snapshot that were not known before.
    pub(crate) fn note(&mut self, snapshot: &Snapshot, query: Option<&BufferQuery>) {
        let (Some(buffers), Some(query)) = (&snapshot.buffers, query) else { return };
        let Some(grouping) = query.group else { return };
        let groups = || buffers.groups.iter().map(|group| (group_key(group, grouping), group.used_bytes));
        let is_same = |it: &&mut GroupList| it.grouping == grouping && it.filter == query.text;
        if let Some(list) = self.lists.iter_mut().find(is_same) {
            for (key, now) in groups() {
                if list.bytes.len() < MAX_GROUPS {
                    list.bytes.entry(key).or_insert(if list.is_complete { 0 } else { now });
                }
            }
            return;
        }
        if self.lists.len() >= MAX_LISTS {
            self.lists.remove(0);
        }
        self.lists.push(GroupList {
            grouping,
            filter: query.text.clone(),
            is_complete: buffers.groups.len() as u64 == buffers.group_count,
            bytes: groups().collect(),
        });
    }

    /// Bytes of a group when its list was opened, if they are known.
    pub(crate) fn first_bytes(
        &self,
        grouping: BufferGrouping,
        filter: &str,
        group: &BufferGroup,
    ) -> Option<u64> {
        let list = self.lists.iter().find(|it| it.grouping == grouping && it.filter == filter)?;
        list.bytes.get(&group_key(group, grouping)).copied()
    }
}
