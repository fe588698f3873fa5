//! How figures are shown, without a terminal: each figure is described once, for every place that shows it.
//!
//! A [`Field`] is a figure of a kind of row: its name for scripts, its unit and help, and the function that reads it
//! from a row. A [`Column`] is a field in a table: its title, its width, and how its value is written there. The tables
//! of `ttmem`, its dumps, the lists of the dashboard, CSV and the reference of fields in `docs/` are all made from
//! these. What a screen draws freely (charts, the map of a core) takes its words from [`label`] and its numbers from
//! [`figure`].

pub mod allocation;
mod column;
pub mod cores;
pub mod device;
pub mod docs;
pub mod event;
pub mod figure;
pub mod label;
pub mod process;
pub mod program;
pub mod query;
pub mod usage;
mod value;

pub use column::{Cell, Column, Field, Form, Head, Kind, Part, find, heading, line, page};
pub use value::{Reading, Tone, Unit, Value};
