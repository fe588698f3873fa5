//! What the screen needs: the parts of a snapshot, and the post-mortem.

use crate::data::{Data, FailureKey};
use crate::ui::{List, Popup, Subject, Ui, View};
use ttmem_core::Detail;
use ttmem_core::detail::{BufferQuery, CoreQuery, ProgramQuery};

impl Ui {
    /// The parts of a snapshot that the screen needs.
    pub fn required_detail(&self, data: &Data) -> Detail {
        let mut detail = Detail { brief: !self.filtered_by_device, ..Detail::NONE };
        match self.view {
            View::Map => {
                detail.cores_of = self.selected_device(&data.snapshot).map(|device| device.index);
                detail.core = detail.cores_of.map(|device| self.core_query(device));
            }
            View::Main => detail.host = true,
            View::Buffers => detail.buffers = Some(self.buffer_query()),
            View::Programs => detail.program_list = Some(self.program_query()),
            View::Events => detail.events = true,
            View::Flame => detail.flame = Some(self.flame.moment),
            View::Addresses => detail.blocks = crate::addresses::query(self, &data.snapshot),
            View::Charts | View::Telemetry => {}
        }
        if let Some(Popup::Details(Subject::Process(key))) = &self.popup {
            detail.pid = crate::lists::pid_from_key(key);
        }
        detail
    }

    /// The failed allocation whose post-mortem the screen needs, and that was not read yet.
    pub(crate) fn required_failure(&self, data: &Data) -> Option<FailureKey> {
        let Some(Popup::Details(Subject::Finding(key))) = &self.popup else { return None };
        let all = &data.snapshot.findings;
        let wanted = FailureKey::of(all.iter().find(|it| crate::lists::finding_key(it) == *key)?)?;
        data.post_mortem.as_ref().is_none_or(|(read, _)| *read != wanted).then_some(wanted)
    }

    fn core_query(&self, device: u32) -> CoreQuery {
        /// More allocations than fit beside the map.
        const BESIDE_MAP: u32 = 80;
        match &self.popup {
            Some(Popup::Details(Subject::Core(_, x, y))) => {
                CoreQuery { device, core: Some([*x, *y]), limit: CoreQuery::MOST }
            }
            // Without a core, the query selects the one with the smallest free gap at the time of the snapshot.
            _ => CoreQuery { device, core: self.core.map(|(x, y)| [x, y]), limit: BESIDE_MAP },
        }
    }

    fn program_query(&self) -> ProgramQuery {
        let state = self.list_state(List::Programs);
        let (offset, limit) = state.fetch_window(ProgramQuery::MOST);
        let open = match &self.popup {
            Some(Popup::Details(Subject::Program(key))) => crate::lists::program_from_key(key),
            _ => None,
        };
        ProgramQuery {
            sort: crate::lists::program_sort(state.sort.column),
            reversed: state.sort.reversed,
            text: state.filter.clone(),
            offset,
            limit,
            open,
            ..ProgramQuery::default()
        }
    }

    fn buffer_query(&self) -> BufferQuery {
        let state = self.list_state(List::Buffers);
        let (offset, limit) = state.fetch_window(BufferQuery::MOST);
        BufferQuery {
            sort: crate::lists::buffer_sort(state.sort.column),
            reversed: state.sort.reversed,
            text: state.filter.clone(),
            group: self.group,
            offset,
            limit,
            ..BufferQuery::default()
        }
    }
}
