//! The reference of fields and columns in `docs/`, generated from the tables.

use crate::column::Column;
use crate::field::{Field, RowKind};
use crate::holder::{HolderKey, dump_columns};
use crate::{allocation, block, cores, device, event, group, holder, process, program, site};
use std::fmt::Write;
use ttmem_core::detail::BufferGrouping;

const FIELDS: &str = "\
# Which fields can scripts use?

<!-- Generated from crates/ttmem-render by `cargo xtask gen`; edit that. -->

```
ttmem --format csv --query index,asic_celsius,dram_used_bytes
```

Fields marked `query` can be used with `--query`; `ttmem --query help` lists them. Those of
processes begin with `process.`, as in `process.pid`. An unknown value is `N/A` in tables and CSV,
and a dash on the dashboard. *Shown as* is the column header in `ttmem` or the dashboard. Lists of
allocations, programs, cores, findings and events: [columns.md](columns.md).
";

const COLUMNS: &str = "\
# What do the columns of the lists mean?

<!-- Generated from crates/ttmem-render by `cargo xtask gen`; edit that. -->

```
ttmem dump --group-by process
```

Every figure that `ttmem dump` and the dashboard show in a list. *Shown as* is the column header.
Fields marked `csv` are those of `ttmem dump --format csv`, in this order. Devices and processes:
[fields.md](fields.md).
";

const GROUPINGS: [BufferGrouping; 5] = [
    BufferGrouping::Process,
    BufferGrouping::Program,
    BufferGrouping::Site,
    BufferGrouping::Op,
    BufferGrouping::File,
];

const HOLDER_TABLES: [HolderKey; 6] = [
    HolderKey::Size,
    HolderKey::Site,
    HolderKey::Op,
    HolderKey::Function,
    HolderKey::File,
    HolderKey::Tensor,
];

/// Generates `docs/fields.md`: what scripts can use of devices and processes.
pub fn fields_page() -> String {
    let mut page = FIELDS.to_owned();
    add_section(
        &mut page,
        "query",
        "Devices",
        device::FIELDS,
        &[device::TABLE, device::SCREEN, device::TELEMETRY],
    );
    add_section(&mut page, "query", "Processes", process::FIELDS, &[process::TABLE, process::SCREEN]);
    add_section(&mut page, "query", "Processes on a device", process::DEVICE_USAGE_FIELDS, &[]);
    page
}

/// Generates `docs/columns.md`: the columns of all other lists.
pub fn columns_page() -> String {
    let mut page = COLUMNS.to_owned();
    add_section(&mut page, "csv", "Allocations", allocation::FIELDS, &[allocation::DUMP, allocation::SCREEN]);
    add_section(
        &mut page,
        "csv",
        "Groups of allocations",
        group::FIELDS,
        &GROUPINGS.map(group::screen_columns),
    );
    add_section(
        &mut page,
        "csv",
        "Groups of `ttmem dump`",
        holder::HOLDER_FIELDS,
        &HOLDER_TABLES.map(dump_columns),
    );
    add_section(&mut page, "csv", "Call sites of `ttmem --sites`", site::FIELDS, &[site::TABLE]);
    add_section(&mut page, "csv", "Blocks", block::FIELDS, &[block::DUMP]);
    add_section(&mut page, "csv", "Programs", program::FIELDS, &[program::DUMP, program::SCREEN]);
    add_section(&mut page, "csv", "Cores", cores::FIELDS, &[cores::DUMP]);
    add_section(&mut page, "csv", "Findings", event::FINDING_FIELDS, &[event::FINDING_SCREEN]);
    add_section(&mut page, "csv", "Events", event::EVENT_FIELDS, &[event::EVENT_SCREEN]);
    page
}

/// Adds a table of fields. `mark`: the column that marks fields for scripts.
fn add_section<K: RowKind>(
    page: &mut String,
    mark: &str,
    title: &str,
    fields: &[Field<K>],
    tables: &[&[Column<K>]],
) {
    let _ = writeln!(
        page,
        "\n## {title}\n\n| field | meaning | unit | {mark} | shown as |\n|---|---|---|---|---|"
    );
    for field in fields {
        let mut shown: Vec<String> = Vec::new();
        for column in tables.iter().copied().flatten().filter(|it| it.field.name == field.name) {
            let title = format!("`{}`", column.header.title);
            if !shown.contains(&title) {
                shown.push(title);
            }
        }
        let Field { name, help, unit, queried, .. } = field;
        let queried = if *queried { mark } else { "" };
        let _ = writeln!(page, "| `{name}` | {help} | {} | {queried} | {} |", unit.sign(), shown.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn check<K: RowKind>(fields: &[Field<K>], tables: &[&[Column<K>]]) {
        let names: BTreeSet<&str> = fields.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), fields.len(), "no name twice");
        for field in fields {
            let shown = tables.iter().copied().flatten().any(|it| it.field.name == field.name);
            assert!(shown || field.queried, "{} is shown nowhere", field.name);
            assert!(!field.help.is_empty(), "{}", field.name);
        }
        for table in tables {
            let keys: BTreeSet<&str> =
                table.iter().filter(|it| it.header.sortable).map(|it| it.header.key).collect();
            assert_eq!(keys.len(), table.iter().filter(|it| it.header.sortable).count(), "no key twice");
        }
    }

    #[test]
    fn every_field_is_described_and_shown() {
        check(device::FIELDS, &[device::TABLE, device::SCREEN, device::TELEMETRY]);
        check(process::FIELDS, &[process::TABLE, process::SCREEN]);
        check(process::DEVICE_USAGE_FIELDS, &[]);
        check(allocation::FIELDS, &[allocation::DUMP, allocation::SCREEN]);
        check(group::FIELDS, &GROUPINGS.map(group::screen_columns));
        check(holder::HOLDER_FIELDS, &HOLDER_TABLES.map(dump_columns));
        check(site::FIELDS, &[site::TABLE]);
        check(block::FIELDS, &[block::DUMP]);
        check(program::FIELDS, &[program::DUMP, program::SCREEN]);
        check(cores::FIELDS, &[cores::DUMP]);
        check(event::FINDING_FIELDS, &[event::FINDING_SCREEN]);
        check(event::EVENT_FIELDS, &[event::EVENT_SCREEN]);
        let page = fields_page();
        assert!(page.contains("| `dram_used_bytes` | DRAM in use | B | query | `used` |"), "{page}");
    }
}
