//! How figures are shown, without a terminal: each figure is described once, for every place that shows it.
//!
//! A [`Field`] is a figure of a kind of row: its name for scripts, its unit and help, and the function that reads it
//! from a row. A [`Column`] is a field in a table: its title, its width, and the format of its values. The tables of
//! `ttmem`, its dumps, the lists of the dashboard, CSV and the reference of fields in `docs/` are all made from these.
//! Charts, the map of a core and other free drawings take their words from [`label`] and their numbers from [`mod@format`].
//!
//! To add a column, add a field to the `FIELDS` of its kind of row (for example in [`process`]) and name that field in
//! the tables that show it, then run `cargo xtask gen` for the reference. Sorting needs nothing more.

pub mod allocation;
pub mod block;
mod column;
pub mod cores;
mod csv;
pub mod device;
pub mod docs;
pub mod event;
mod field;
pub mod fit;
pub mod flame;
pub mod format;
pub mod group;
pub mod holder;
pub mod label;
pub mod leaks;
pub mod other_cores;
mod page;
pub mod postmortem;
pub mod process;
pub mod program;
pub mod query;
pub mod run_report;
pub mod site;
mod text_page;
pub mod usage;
mod value;

pub use column::{Cell, Column, Format, Header};
pub use csv::{CsvOptions, CsvPage, csv_header, csv_values, format_csv};
pub use field::{Field, RowKind, find_field};
pub use page::{PageCell, format_heading, format_row, format_table};
pub use text_page::Line;
pub use value::{Reading, Tone, Unit, Value};
