//! Opening the details of a row, and going back.

use super::cores::selected_core;
use super::filter::{self, filtered_list};
use crate::addresses;
use crate::data::Data;
use crate::flame;
use crate::lists;
use crate::ui::{List, Popup, Subject, Ui, View};
use ttmem_core::Snapshot;

/// Opens the details of the row under the cursor.
pub(super) fn open_selected(ui: &mut Ui, data: &Data) {
    let snapshot = &data.snapshot;
    if ui.view == View::Buffers && ui.group.is_some() {
        return open_group(ui, snapshot);
    }
    if ui.view == View::Flame {
        return flame::zoom_in(ui, snapshot);
    }
    let device_id = || ui.selected_device(snapshot).map(|device| device.id.clone());
    let subject = match ui.view {
        View::Charts => {
            ui.single = !ui.single;
            return;
        }
        View::Map => device_id().and_then(|id| {
            let (x, y) = selected_core(ui, data)?;
            Some(Subject::Core(id, x, y))
        }),
        _ => ui.focused_list().and_then(|list| {
            let key = lists::selected_key(snapshot, ui, list)?;
            Some(match list {
                List::Devices => Subject::Device(key),
                List::Processes => Subject::Process(key),
                List::Programs => Subject::Program(key),
                List::Findings => Subject::Finding(key),
                List::Events => Subject::Event(key.parse().ok()?),
                List::Buffers => Subject::Buffer(key),
                List::Blocks => Subject::Buffer(addresses::selected_buffer(ui, snapshot)?),
            })
        }),
    };
    if let Some(subject) = subject {
        (ui.popup, ui.popup_offset) = (Some(Popup::Details(subject)), 0);
    }
}

/// Replaces the list of groups by the buffers of the selected group. A filter selects these.
fn open_group(ui: &mut Ui, snapshot: &Snapshot) {
    let state = ui.list_state(List::Buffers);
    let page = snapshot.buffers.as_ref();
    let group = page.and_then(|page| page.groups.get(state.cursor.checked_sub(page.offset as usize)?));
    let Some(group) = group else { return };
    let name = group.program_name.as_ref().or(group.site_name.as_ref()).or(group.label.as_ref());
    let words = [
        group.pid.map(|pid| pid.to_string()),
        group.space.map(|space| space.name().to_owned()),
        // A name may be long; its first words are enough.
        name.cloned(),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let filter: String = words.join(" ").chars().take(filter::MAX_CHARS).collect();
    let groups = state.clone();
    ui.opened_from = ui.group.take().map(|group| (group, groups));
    let state = ui.list_state_mut(List::Buffers);
    state.filter = filter;
    state.reset_cursor();
}

/// Goes back one step: from a group to the groups, from one device to all, by clearing the filter, or by zooming out.
pub(super) fn go_back(ui: &mut Ui, data: &Data, now_ms: u64) {
    let is_filtered = filtered_list(ui).is_some_and(|list| !ui.list_state(list).filter.is_empty());
    if ui.view == View::Buffers && ui.opened_from.is_some() {
        if let Some((group, state)) = ui.opened_from.take() {
            ui.group = Some(group);
            *ui.list_state_mut(List::Buffers) = state;
        }
    } else if is_filtered {
        filter::clear(ui, &data.snapshot);
    } else if ui.view == View::Flame && !ui.flame.search.is_empty() {
        ui.flame.search.clear();
    } else if ui.view == View::Flame && ui.flame.zoom_out() {
        // A step of the zoom was undone.
    } else if ui.single {
        ui.single = false;
    } else if ui.group.is_some() && ui.view == View::Buffers {
        ui.group = None;
    } else {
        ui.show_status(now_ms, "q: quit");
    }
}
