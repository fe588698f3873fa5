//! The reference of fields in `docs/`, made from the fields themselves.

/// Where it is kept.
const PAGE: &str = "docs/fields.md";

/// Writes the page if it is out of date; `check`: only says so, as an error.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    crate::header::keep(PAGE, &ttmem_render::docs::page(), check)
}
