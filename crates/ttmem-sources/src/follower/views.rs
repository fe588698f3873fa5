//! Views whose addresses may differ at every dispatch. The record of a dispatch has the addresses of all views of its program, so
//! that it is the only record of a program that moved; here it becomes a free and an allocation of each view that moved.

use super::{Emit, Follower};
use ttmem_core::input::Input;
use ttmem_wire::ViewAddresses;
use ttmem_wire::record::{Kind, Record};

/// Programs whose views are followed. The views of more stay where they were registered.
const MAX_PROGRAMS: usize = 1 << 16;

/// The movable views of a program.
#[derive(Default)]
pub(super) struct ProgramViews {
    addresses: ViewAddresses,
    /// The views as they were last emitted: `id` is the address.
    views: Vec<Record>,
}

impl Follower {
    /// Notes the addresses of views in the record of a program, before the views themselves are listed.
    pub(super) fn note_addresses(&mut self, record: &Record) {
        let addresses = record.view_addresses();
        if record.kind != Kind::Trace as u8
            && !addresses.is_empty()
            && let Some(known) = self.views_of(record)
        {
            known.addresses = addresses;
        }
    }

    /// The movable views of a record's program, added if there are none yet and there is room.
    fn views_of(&mut self, record: &Record) -> Option<&mut ProgramViews> {
        let key = (record.allocator.get(), record.program.get());
        let has_room = self.views.len() < MAX_PROGRAMS || self.views.contains_key(&key);
        has_room.then(|| self.views.entry(key).or_default())
    }

    /// Adds a view that may move, and returns its record with its current address. Any other record is returned as it is.
    pub(super) fn add_view(&mut self, record: &Record) -> Record {
        let Some(number) = record.view_number() else { return *record };
        let Some(of_program) = self.views_of(record) else { return *record };
        let address = of_program.addresses.get(number).unwrap_or(record.id.get());
        let view = Record { id: address.into(), ..*record };
        if number < ViewAddresses::MOST && of_program.views.len() < ViewAddresses::MOST {
            of_program.views.push(view);
        }
        view
    }

    /// Moves the views of a program that was built or dispatched.
    #[inline]
    pub(super) fn move_views(&mut self, record: &Record, emit: Emit<'_>) {
        let addresses = record.view_addresses();
        if addresses.is_empty() {
            return;
        }
        let key = (record.allocator.get(), record.program.get());
        let Some(known) = self.views.get_mut(&key).filter(|known| known.addresses != addresses) else {
            return;
        };
        known.addresses = addresses;
        let mut views = std::mem::take(&mut known.views);
        for view in &mut views {
            self.move_view(view, addresses, emit);
        }
        if let Some(known) = self.views.get_mut(&key) {
            known.views = views;
        }
    }

    fn move_view(&self, view: &mut Record, addresses: ViewAddresses, emit: Emit<'_>) {
        let address = view.view_number().and_then(|number| addresses.get(number));
        let (Some(address), Some(space)) = (address.filter(|&it| it != view.id.get()), view.space()) else {
            return;
        };
        let scope = self.scope(view.allocator.get());
        emit(Input::Free(self.to_free(view, scope, space)));
        view.id = address.into();
        emit(Input::Alloc(self.to_alloc(view, scope, space)));
    }
}
