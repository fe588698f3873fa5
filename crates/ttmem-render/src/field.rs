//! Fields: the figures of each kind of row.

use crate::value::{Unit, Value};
use std::fmt;

/// A kind of row: devices, processes, allocations and so on.
pub trait RowKind: 'static {
    /// The data that a row's values are read from.
    type Row<'a>: Copy;
}

/// A figure of a kind of row.
pub struct Field<K: RowKind> {
    /// Name, for scripts and the reference.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Short description.
    pub help: &'static str,
    /// Whether it is for scripts: devices and processes with `--query`, lists with `--format csv`.
    pub queried: bool,
    /// Reads the value from a row.
    pub value: for<'r> fn(&'r K::Row<'_>) -> Value<'r>,
}

impl<K: RowKind> Field<K> {
    /// Creates a field for tables only.
    pub const fn new(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        value: for<'r> fn(&'r K::Row<'_>) -> Value<'r>,
    ) -> Self {
        Self { name, unit, help, queried: false, value }
    }

    /// Offers the field to scripts as well.
    #[must_use]
    pub const fn queried(self) -> Self {
        Self { queried: true, ..self }
    }
}

impl<K: RowKind> fmt::Debug for Field<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Finds a field by name. Tables do so at compile time, so an unknown name does not compile.
pub const fn find_field<K: RowKind>(fields: &'static [Field<K>], name: &str) -> &'static Field<K> {
    let mut at = 0;
    while at < fields.len() {
        if is_equal(fields[at].name, name) {
            return &fields[at];
        }
        at += 1;
    }
    panic!("there is no field of that name");
}

const fn is_equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
