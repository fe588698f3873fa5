//! Cores that programs cannot use, in words.

use crate::format::{plural, size};
use crate::label;
use ttmem_core::machine::{DispatchCores, EthernetCores, OtherCores};

/// The note below these cores: no source reports what they hold.
pub const UNTRACKED_NOTE: &str = "what dispatch, fabric and firmware hold in these cores is not tracked";

/// The Tensix cores for dispatch; `None` if they are unknown.
pub fn dispatch(cores: &OtherCores) -> Option<String> {
    let dispatch = cores.dispatch?;
    let DispatchCores { program_cores, cores: kept, l1_bytes, origin, .. } = dispatch;
    let (all, origin) = (program_cores.saturating_add(kept), label::capacity_origin(origin));
    if kept == 0 {
        return Some(format!("on no Tensix core, all {all} are for programs; {origin}"));
    }
    let place = place(&dispatch);
    Some(format!("{kept} of {all} Tensix cores{place}, {} of L1; {origin}", size(l1_bytes)))
}

/// The ethernet cores and who may use them; `None` if they are unknown.
pub fn ethernet(cores: &OtherCores) -> Option<String> {
    let EthernetCores { cores: count, l1_bytes_per_core, l1_bytes, origin } = cores.ethernet?;
    let origin = label::capacity_origin(origin);
    if count == 0 {
        return Some(format!("no cores; {origin}"));
    }
    let users = match cores.dispatch {
        Some(DispatchCores { cores: 0, .. }) => "links, fabric and dispatch",
        _ => "links and fabric",
    };
    let (count, of_one, all) = (plural(count.into(), "core"), size(l1_bytes_per_core), size(l1_bytes));
    Some(format!("{count} x {of_one} = {all} of L1, for {users}; {origin}"))
}

/// The number of these cores in a few words, with their place and without it; `None` if nothing is known or there are none.
pub fn summaries(cores: &OtherCores) -> Option<[String; 2]> {
    let dispatch = cores.dispatch.filter(|it| it.cores > 0);
    let ethernet = cores.ethernet.filter(|it| it.cores > 0).map(|it| format!("{} ethernet", it.cores));
    let join = |dispatch: Option<String>| {
        let parts = dispatch.into_iter().chain(ethernet.clone()).collect::<Vec<_>>().join(", ");
        format!("not shown: {parts}")
    };
    (dispatch.is_some() || ethernet.is_some()).then(|| {
        let long = join(dispatch.map(|it| format!("{} dispatch{}", it.cores, place(&it))));
        [format!("{long} cores"), join(dispatch.map(|it| format!("{} dispatch", it.cores)))]
    })
}

/// The rows or columns of dispatch cores: ` (row 7)`.
fn place(cores: &DispatchCores) -> String {
    let lines = |name: &str, [first, last]: [u8; 2]| {
        if first == last { format!(" ({name} {first})") } else { format!(" ({name}s {first}-{last})") }
    };
    let rows = cores.rows.map(|rows| lines("row", rows));
    rows.or_else(|| cores.columns.map(|columns| lines("column", columns))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ttmem_core::machine::CapacityOrigin;

    const DISPATCH: DispatchCores = DispatchCores {
        program_cores: 56,
        cores: 8,
        rows: Some([7, 7]),
        columns: None,
        l1_bytes: 8 * (1464 << 10),
        origin: CapacityOrigin::Runtime,
    };
    const ETHERNET: EthernetCores = EthernetCores {
        cores: 16,
        l1_bytes_per_core: 256 << 10,
        l1_bytes: 4 << 20,
        origin: CapacityOrigin::Board,
    };

    fn with_dispatch(dispatch: DispatchCores) -> OtherCores {
        OtherCores { dispatch: Some(dispatch), ethernet: Some(ETHERNET) }
    }

    #[test]
    fn place_and_origin_of_cores_are_named() {
        let text = |dispatched| dispatch(&with_dispatch(dispatched)).unwrap();
        assert_eq!(text(DISPATCH), "8 of 64 Tensix cores (row 7), 11.4 MiB of L1; reported by the runtime");
        let columns = DispatchCores { rows: None, columns: Some([10, 11]), ..DISPATCH };
        assert!(text(columns).contains("(columns 10-11)"));
        let unknown = DispatchCores { rows: None, ..DISPATCH };
        assert!(text(unknown).starts_with("8 of 64 Tensix cores, 11.4 MiB"));
        assert_eq!(
            ethernet(&with_dispatch(DISPATCH)).unwrap(),
            "16 cores x 256.0 KiB = 4.0 MiB of L1, for links and fabric; assumed from the board"
        );
        let [long, short] = summaries(&with_dispatch(DISPATCH)).unwrap();
        assert_eq!(long, "not shown: 8 dispatch (row 7), 16 ethernet cores");
        assert_eq!(short, "not shown: 8 dispatch, 16 ethernet");
    }

    #[test]
    fn dispatch_may_run_on_ethernet_cores() {
        let none = DispatchCores { program_cores: 64, cores: 0, rows: None, l1_bytes: 0, ..DISPATCH };
        let cores = with_dispatch(none);
        assert_eq!(
            dispatch(&cores).unwrap(),
            "on no Tensix core, all 64 are for programs; reported by the runtime"
        );
        assert!(ethernet(&cores).unwrap().contains("for links, fabric and dispatch;"));
        assert_eq!(summaries(&cores).unwrap()[0], "not shown: 16 ethernet cores");
        let no_ethernet = EthernetCores { cores: 0, l1_bytes: 0, ..ETHERNET };
        let nothing = OtherCores { ethernet: Some(no_ethernet), ..cores };
        assert_eq!(ethernet(&nothing).unwrap(), "no cores; assumed from the board");
        assert_eq!((summaries(&nothing), summaries(&OtherCores::default())), (None, None));
    }
}
