use super::*;
use ttmem_core::snapshot::FlameStack;

fn frame(kind: FrameKind, name: &str, line: u32) -> Frame {
    Frame { kind, name: name.to_owned(), file: Some("/m.py".to_owned()), line: Some(line) }
}

fn pool(pid: u32, space: Space, indexes: &[u32], stacks: &[(&[u32], u64)]) -> FlamePool {
    let stack = |(frames, bytes): &(&[u32], u64)| FlameStack {
        frames: frames.to_vec(),
        count: Some(1),
        bytes: *bytes,
    };
    let stacks: Vec<FlameStack> = stacks.iter().map(stack).collect();
    FlamePool {
        pid: Some(pid),
        reported_pid: None,
        process_name: Some("python".to_owned()),
        hidden: false,
        indexes: indexes.to_vec(),
        space,
        bytes: Some(stacks.iter().map(|it| it.bytes).sum()),
        at: None,
        gap: None,
        stacks,
    }
}

/// Two processes; the first one is on two devices.
fn flame() -> Flame {
    Flame {
        moment: FlameMoment::Live,
        frames: vec![
            frame(FrameKind::Call, "a", 1),
            frame(FrameKind::Call, "b", 2),
            frame(FrameKind::Op, "c", 3),
        ],
        pools: vec![
            pool(1, Space::Dram, &[0, 1], &[(&[0], 5), (&[0, 1], 10), (&[0, 1, 2], 20), (&[2], 40)]),
            pool(2, Space::Dram, &[1], &[(&[0, 1], 100)]),
            pool(2, Space::L1, &[1], &[(&[0], 7)]),
        ],
    }
}

fn check(tree: &FlameTree<'_>) {
    for node in &tree.nodes {
        let below: u64 = node.children.iter().map(|&child| tree.nodes[child].bytes).sum();
        assert_eq!(below + node.own_bytes, node.bytes, "{}", node.name);
        assert!(node.children.is_sorted_by(|&a, &b| tree.nodes[a].bytes >= tree.nodes[b].bytes));
    }
}

#[test]
fn children_and_own_bytes_add_up_at_every_node() {
    let flame = flame();
    for (selected, expected) in [(None, 250), (Some(0), 75), (Some(1), 175), (Some(2), 0)] {
        let is_selected = |index| selected.is_none_or(|it| it == index);
        let tree = FlameTree::new(&flame, Space::Dram, is_selected);
        assert_eq!(tree.nodes[0].bytes, expected);
        check(&tree);
        let all = spaces(&flame, is_selected);
        let dram = all.iter().find(|it| it.0 == Space::Dram);
        assert_eq!(dram.map_or(0, |it| it.1.unwrap()), expected);
    }
}

#[test]
fn nodes_are_found_by_their_keys() {
    let flame = flame();
    let tree = FlameTree::new(&flame, Space::Dram, |_| true);
    for node in 0..tree.nodes.len() {
        let keys = tree.keys(node);
        assert_eq!(tree.find(&keys), (node, keys.len()));
    }
    let mut gone = tree.keys(tree.nodes.len() - 1);
    gone.push(gone[0].clone());
    assert_eq!(tree.find(&gone).1, gone.len() - 1, "of a path that ended, the rest is left out");
    assert_eq!(tree.below(0).len(), tree.nodes.len());
}

#[test]
fn matches_within_matches_count_once() {
    let flame = flame();
    let tree = FlameTree::new(&flame, Space::Dram, |_| true);
    let named = |names: &[&str]| tree.matching_bytes(0, &|at| names.contains(&&*tree.nodes[at].name));
    assert_eq!(named(&["b"]), 60 + 100);
    assert_eq!(named(&["b", "c"]), 60 + 100 + 80, "c within b is counted with b");
    assert_eq!(named(&[]), 0);
}

#[test]
fn positions_beyond_the_list_of_frames_are_left_out() {
    let mut flame = flame();
    flame.frames.truncate(1);
    let tree = FlameTree::new(&flame, Space::Dram, |_| true);
    check(&tree);
    assert_eq!(tree.nodes[0].bytes, 250);
}
