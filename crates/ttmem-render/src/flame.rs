//! The tree of a flame graph: buffers of one space by process, call, operation and tensor.
//!
//! At every node, what its children have and what is its own add up to what it has.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use ttmem_core::snapshot::{Flame, FlameGap, FlameMoment, FlamePool, Frame, FrameKind};
use ttmem_core::words::Space;

/// Memory of one space. Node 0 is the root.
#[derive(Clone, Debug)]
pub struct FlameTree<'a> {
    /// The nodes, each after its parent.
    pub nodes: Vec<FlameNode<'a>>,
    /// Memory space.
    pub space: Space,
    /// Pools of which something is unknown.
    pub gaps: Vec<(FlameGap, &'a FlamePool)>,
}

/// A node.
#[derive(Clone, Debug)]
pub struct FlameNode<'a> {
    /// Name of the space, the process, or the frame.
    pub name: Cow<'a, str>,
    /// The frame; `None` for the space and for a process.
    pub frame: Option<&'a Frame>,
    /// Parent.
    pub parent: Option<usize>,
    /// Number of nodes above it.
    pub depth: usize,
    /// Largest first.
    pub children: Vec<usize>,
    /// Bytes on all selected devices, those of children included.
    pub bytes: u64,
    /// Number of buffers; `None`: unknown.
    pub count: Option<u64>,
    /// Bytes that no child has.
    pub own_bytes: u64,
    /// Whether it has buffers that no child has.
    pub has_own: bool,
}

/// What distinguishes a node from the other children of its parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    kind: Option<FrameKind>,
    name: String,
    place: Option<(String, Option<u32>)>,
}

impl FlameNode<'_> {
    fn new<'a>(
        name: Cow<'a, str>,
        frame: Option<&'a Frame>,
        parent: Option<(usize, usize)>,
    ) -> FlameNode<'a> {
        FlameNode {
            name,
            frame,
            parent: parent.map(|it| it.0),
            depth: parent.map_or(0, |it| it.1 + 1),
            children: Vec::new(),
            bytes: 0,
            count: Some(0),
            own_bytes: 0,
            has_own: false,
        }
    }

    /// The kind of its frame; `None` for the space and for a process.
    pub fn kind(&self) -> Option<FrameKind> {
        self.frame.map(|frame| frame.kind)
    }

    /// The file and line, as far as they are known.
    pub fn place(&self) -> Option<(&str, Option<u32>)> {
        let frame = self.frame?;
        Some((frame.file.as_deref()?, frame.line))
    }

    /// What distinguishes it from the other children of its parent.
    pub fn key(&self) -> NodeKey {
        let place = self.place().map(|(file, line)| (file.to_owned(), line));
        NodeKey { kind: self.kind(), name: self.name.clone().into_owned(), place }
    }

    fn has_key(&self, key: &NodeKey) -> bool {
        let place = key.place.as_ref().map(|(file, line)| (file.as_str(), *line));
        (self.kind(), &*self.name, self.place()) == (key.kind, key.name.as_str(), place)
    }

    fn add(&mut self, count: Option<u64>, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.count = self.count.zip(count).map(|(a, b)| a.saturating_add(b));
    }
}

impl<'a> FlameTree<'a> {
    /// The tree of a space on the devices that are selected by their index.
    pub fn new(flame: &'a Flame, space: Space, is_selected: impl Fn(u32) -> bool) -> Self {
        let root = FlameNode::new(Cow::Borrowed(space_name(space)), None, None);
        let mut tree = Self { nodes: vec![root], space, gaps: Vec::new() };
        let mut children: BTreeMap<(usize, Child), usize> = BTreeMap::new();
        for pool in flame.pools.iter().filter(|pool| pool.space == space) {
            let devices = selected_devices(pool, &is_selected);
            if devices == 0 {
                continue;
            }
            tree.gaps.extend(pool.gap.map(|gap| (gap, pool)));
            for stack in &pool.stacks {
                let bytes = stack.bytes.saturating_mul(devices);
                tree.nodes[0].add(stack.count, bytes);
                let process = Child::Process(pool.pid, pool.reported_pid, pool.process_name.as_deref());
                let known = stack.frames.iter().filter(|&&number| (number as usize) < flame.frames.len());
                let mut at = 0;
                for child in std::iter::once(process).chain(known.map(|&number| Child::Frame(number))) {
                    at = *children.entry((at, child)).or_insert_with(|| tree.add_child(at, child, flame));
                    tree.nodes[at].add(stack.count, bytes);
                }
                let own = &mut tree.nodes[at];
                own.own_bytes = own.own_bytes.saturating_add(bytes);
                own.has_own = true;
            }
        }
        tree.sort_children();
        tree
    }

    fn add_child(&mut self, parent: usize, child: Child<'a>, flame: &'a Flame) -> usize {
        let number = self.nodes.len();
        let above = Some((parent, self.nodes[parent].depth));
        self.nodes.push(match child {
            Child::Process(pid, reported, name) => {
                FlameNode::new(Cow::Owned(describe_process(pid, reported, name)), None, above)
            }
            Child::Frame(frame) => {
                let frame = &flame.frames[frame as usize];
                FlameNode::new(Cow::Borrowed(frame.name.as_str()), Some(frame), above)
            }
        });
        self.nodes[parent].children.push(number);
        number
    }

    fn sort_children(&mut self) {
        for at in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[at].children);
            children.sort_by(|&a, &b| {
                let rank =
                    |n: usize| (Reverse(self.nodes[n].bytes), &self.nodes[n].name, self.nodes[n].place());
                rank(a).cmp(&rank(b))
            });
            self.nodes[at].children = children;
        }
    }

    /// The node below the root that these keys lead to, and how many of them do.
    pub fn find(&self, path: &[NodeKey]) -> (usize, usize) {
        let mut at = 0;
        for (n, key) in path.iter().enumerate() {
            match self.nodes[at].children.iter().find(|&&child| self.nodes[child].has_key(key)) {
                Some(&child) => at = child,
                None => return (at, n),
            }
        }
        (at, path.len())
    }

    /// The nodes from below the root to a node.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(node), |&at| self.nodes[at].parent)
            .take_while(|&at| at != 0)
            .collect();
        path.reverse();
        path
    }

    /// The keys that lead to a node.
    pub fn keys(&self, node: usize) -> Vec<NodeKey> {
        self.path(node).into_iter().map(|at| self.nodes[at].key()).collect()
    }

    /// A node and all nodes below it, each after its parent, largest children first.
    pub fn below(&self, node: usize) -> Vec<usize> {
        let (mut found, mut left) = (Vec::new(), vec![node]);
        while let Some(at) = left.pop() {
            found.push(at);
            left.extend(self.nodes[at].children.iter().rev());
        }
        found
    }

    /// Bytes of the nodes at or below `node` for which `is_match` is true; those within another one are not counted again.
    pub fn matching_bytes(&self, node: usize, is_match: &dyn Fn(usize) -> bool) -> u64 {
        let (mut bytes, mut left) = (0u64, vec![node]);
        while let Some(at) = left.pop() {
            if is_match(at) {
                bytes = bytes.saturating_add(self.nodes[at].bytes);
            } else {
                left.extend(&self.nodes[at].children);
            }
        }
        bytes
    }
}

/// The child of a node: a process, or a frame by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Child<'a> {
    Process(Option<u32>, Option<i64>, Option<&'a str>),
    Frame(u32),
}

/// Bytes of each space on the selected devices, without spaces that have no buffers and no gaps; `None`: unknown.
pub fn spaces(flame: &Flame, is_selected: impl Fn(u32) -> bool) -> Vec<(Space, Option<u64>)> {
    let mut found: BTreeMap<Space, Option<u64>> = BTreeMap::new();
    for pool in &flame.pools {
        let devices = selected_devices(pool, &is_selected);
        if devices == 0 || (pool.gap.is_none() && pool.stacks.is_empty()) {
            continue;
        }
        let sum = found.entry(pool.space).or_default();
        for stack in &pool.stacks {
            *sum = Some(sum.unwrap_or(0).saturating_add(stack.bytes.saturating_mul(devices)));
        }
    }
    found.into_iter().collect()
}

/// Number of devices of a pool that are selected. Buffers on unknown devices are on one.
fn selected_devices(pool: &FlamePool, is_selected: &impl Fn(u32) -> bool) -> u64 {
    match pool.indexes[..] {
        [] => 1,
        _ => pool.indexes.iter().filter(|&&index| is_selected(index)).count() as u64,
    }
}

/// The name of a space.
pub fn space_name(space: Space) -> &'static str {
    if space == Space::L1Core { crate::label::space(space) } else { space.title() }
}

fn describe_process(pid: Option<u32>, reported: Option<i64>, name: Option<&str>) -> String {
    let name = name.unwrap_or("unknown");
    match (pid, reported) {
        (Some(pid), _) => format!("{name} (pid {pid})"),
        (None, Some(pid)) => format!("{name} (reported pid {pid})"),
        (None, None) => name.to_owned(),
    }
}

/// What a moment is called.
pub fn moment_name(moment: FlameMoment) -> &'static str {
    match moment {
        FlameMoment::Live => "live",
        FlameMoment::Peak => "at the peak",
        FlameMoment::Mark => "since the mark",
    }
}

/// What is unknown, one sentence for each reason.
pub fn describe_gaps(gaps: &[(FlameGap, &FlamePool)]) -> Vec<String> {
    let mut by_reason: BTreeMap<FlameGap, Vec<String>> = BTreeMap::new();
    for (gap, pool) in gaps {
        let name = describe_process(pool.pid, pool.reported_pid, pool.process_name.as_deref());
        let names = by_reason.entry(*gap).or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let list = |names: Vec<String>| match names.len() {
        0..=3 => names.join(", "),
        count => format!("{count} processes"),
    };
    by_reason.into_iter().map(|(gap, names)| explain(gap, &list(names))).collect()
}

fn explain(gap: FlameGap, processes: &str) -> String {
    match gap {
        FlameGap::NotFollowed => format!(
            "stacks at the peak of {processes} are unknown, since ttmem did not follow the process then: use `ttmem run`, the daemon or the dashboard"
        ),
        FlameGap::NoMark => format!("no mark set by {processes}; set one with `ttmem.mark(\"step\")`"),
        FlameGap::NotListed => {
            format!(
                "not complete for {processes}: some buffers are not listed one by one, so their age is unknown"
            )
        }
    }
}

#[cfg(test)]
mod tests;
