//! The dashboard.
//!
//! ```text
//! keys, mouse ──► Msg ──► update(Ui, Shown) ──► Effect ──► signals, settings, what to fetch next
//! snapshots ────► Msg ──┘          │
//!                                  ▼
//!                 view(Shown, Ui) ──► screen, and where one can click
//! ```
//!
//! [`Ui`] is the state of the user interface, [`Shown`] the data to show. [`update()`] changes them, [`view()`] draws them and
//! changes nothing. [`run()`] is the only part that touches the terminal; its caller provides the snapshots.

mod canvas;
mod chart;
mod keys;
mod lists;
mod run;
mod settings;
mod shown;
mod table;
mod terminal;
mod theme;
mod ui;
mod update;
mod views;

pub use run::{Done, Fetched, Hands, Sender, Start, run};
pub use settings::Settings;
pub use shown::{Histories, Lost, Shown};
pub use theme::{Depth, Theme, ThemeName};
pub use ui::{Laid, Recipient, Signal, Terms, Ui, View};
pub use update::{Effect, Msg, update};
pub use views::{Now, view};
