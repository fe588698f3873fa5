//! The state of the flame view, and the tree that follows from it and the data.

use crate::keys::Action;
use crate::ui::Ui;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::FlameMoment;
use ttmem_core::words::Space;
use ttmem_render::flame::{FlameTree, NodeKey, spaces};

/// What the user selected.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FlameState {
    pub(crate) moment: FlameMoment,
    /// `None`: the first space that has buffers.
    pub(crate) space: Option<Space>,
    /// Words that frames are searched for.
    pub(crate) search: String,
    /// The keys that lead to the selected node.
    selected: Vec<NodeKey>,
    /// Lengths of those parts of this path that lead to the nodes that were zoomed into, one after the other.
    zooms: Vec<usize>,
}

impl FlameState {
    /// Selects the root, which is shown again.
    fn reset(&mut self) {
        self.selected.clear();
        self.zooms.clear();
    }

    pub(crate) fn set_space(&mut self, space: Space) {
        self.space = Some(space);
        self.reset();
    }

    pub(crate) fn next_moment(&mut self) {
        self.moment = match self.moment {
            FlameMoment::Live => FlameMoment::Peak,
            FlameMoment::Peak => FlameMoment::Mark,
            FlameMoment::Mark => FlameMoment::Live,
        };
    }

    /// Zooms out by one step. Returns whether there was one.
    pub(crate) fn zoom_out(&mut self) -> bool {
        self.zooms.pop().is_some()
    }
}

/// A flame as the screen shows it.
pub(crate) struct ShownFlame<'a> {
    /// Spaces with their bytes, as far as they are known.
    pub(crate) spaces: Vec<(Space, Option<u64>)>,
    pub(crate) tree: FlameTree<'a>,
    /// The node that takes the whole width.
    pub(crate) zoom: usize,
    pub(crate) selected: usize,
}

impl<'a> ShownFlame<'a> {
    /// The tree of the selected space; `None`: the flame of this moment was not fetched yet.
    pub(crate) fn new(ui: &Ui, snapshot: &'a Snapshot) -> Option<Self> {
        let state = &ui.flame;
        let flame = snapshot.flame.as_ref().filter(|flame| flame.moment == state.moment)?;
        let device = ui.selected_device(snapshot).filter(|_| ui.single).map(|device| device.index);
        let is_selected = |index| device.is_none_or(|device| device == index);
        let spaces = spaces(flame, is_selected);
        let space = state.space.or_else(|| spaces.first().map(|it| it.0)).unwrap_or(Space::Dram);
        let tree = FlameTree::new(flame, space, is_selected);
        let (selected, found) = tree.find(&state.selected);
        let zoom_depth = state.zooms.last().copied().unwrap_or(0).min(found);
        let zoom = zoom_depth.checked_sub(1).map_or(0, |at| tree.path(selected)[at]);
        Some(Self { spaces, tree, zoom, selected })
    }

    /// For each node whether it has every word of the search in its name or file; `None`: there is no search.
    pub(crate) fn matches(&self, search: &str) -> Option<Vec<bool>> {
        let search = search.to_lowercase();
        let words: Vec<&str> = search.split_whitespace().collect();
        (!words.is_empty()).then(|| {
            let nodes = self.tree.nodes.iter();
            let fits = |(at, node): (usize, &ttmem_render::flame::FlameNode<'_>)| {
                let file = node.place().map_or("", |(file, _)| file);
                let text = format!("{} {file}", node.name).to_lowercase();
                at != 0 && words.iter().all(|word| text.contains(word))
            };
            nodes.enumerate().map(fits).collect()
        })
    }

    /// The node that an action of the arrow keys leads to.
    fn step(&self, action: Action) -> usize {
        let (nodes, at) = (&self.tree.nodes, self.selected);
        match action {
            Action::Up if at != self.zoom => nodes[at].parent.unwrap_or(at),
            Action::Down => nodes[at].children.first().copied().unwrap_or(at),
            Action::PageUp | Action::First => self.zoom,
            Action::PageDown | Action::Last => {
                let down = |&at: &usize| nodes[at].children.first().copied();
                std::iter::successors(Some(at), down).last().unwrap_or(at)
            }
            Action::Left | Action::Right => {
                let mut row = self.tree.below(self.zoom);
                row.retain(|&other| nodes[other].depth == nodes[at].depth);
                let place = row.iter().position(|&other| other == at).unwrap_or(0);
                let to = if action == Action::Left { place.saturating_sub(1) } else { place + 1 };
                row.get(to).copied().unwrap_or(at)
            }
            _ => at,
        }
    }
}

/// Moves the selection.
pub(crate) fn move_selection(ui: &mut Ui, snapshot: &Snapshot, action: Action) {
    let Some(shown) = ShownFlame::new(ui, snapshot) else { return };
    select(ui, &shown, shown.step(action));
}

/// Selects a node; returns whether it was selected already.
pub(crate) fn click(ui: &mut Ui, snapshot: &Snapshot, node: usize) -> bool {
    let Some(shown) = ShownFlame::new(ui, snapshot) else { return false };
    if node >= shown.tree.nodes.len() {
        return false;
    }
    let was_selected = shown.selected == node;
    select(ui, &shown, node);
    was_selected
}

fn select(ui: &mut Ui, shown: &ShownFlame<'_>, node: usize) {
    let keys = shown.tree.keys(node);
    // What was zoomed into is above every node on the screen; of a path that became shorter, it is its end.
    let depth = shown.tree.nodes[shown.zoom].depth;
    ui.flame.zooms.retain(|&zoom| zoom <= depth);
    ui.flame.selected = keys;
}

/// Shows the selected node in the whole width.
pub(crate) fn zoom_in(ui: &mut Ui, snapshot: &Snapshot) {
    let Some(shown) = ShownFlame::new(ui, snapshot) else { return };
    if shown.selected != shown.zoom {
        let depth = shown.tree.nodes[shown.selected].depth;
        select(ui, &shown, shown.selected);
        ui.flame.zooms.push(depth);
    }
}

/// Selects the space after the shown one.
pub(crate) fn next_space(ui: &mut Ui, snapshot: &Snapshot) {
    let Some(shown) = ShownFlame::new(ui, snapshot) else { return };
    let after = shown.spaces.iter().map(|it| it.0).find(|&space| space > shown.tree.space);
    if let Some(space) = after.or_else(|| shown.spaces.first().map(|it| it.0)) {
        ui.flame.set_space(space);
    }
}
