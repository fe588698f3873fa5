//! The dashboard.
//!
//! ```text
//! keys, mouse ──► Msg ──► update(Ui, Data) ──► Effect ──► signals, settings, what to fetch next
//! snapshots ────► Msg ──┘         │
//!                                 ▼
//!                 view(Data, Ui) ──► screen, and the targets of clicks
//! ```
//!
//! [`Ui`] is the state of the user interface, [`Data`] the data to show. [`update()`] changes them, [`view()`] draws them
//! and changes nothing. [`run()`] is the only part that uses the terminal; its caller provides the snapshots.

mod addresses;
mod canvas;
mod data;
mod flame;
mod growth;
mod keys;
mod lists;
mod plot;
mod queries;
mod run;
mod settings;
mod table;
mod terminal;
mod theme;
mod ui;
mod update;
mod views;

pub use data::{Data, FailureKey, Histories, Outage};
pub use run::{Callbacks, EffectResult, FetchResult, PostMortemReader, SignalSender, StartOptions, run};
pub use settings::Settings;
pub use theme::{ColourDepth, Theme, ThemeName};
pub use ui::{Environment, Recipient, ScreenLayout, Signal, Ui, View};
pub use update::{Effect, Msg, update};
pub use views::{Now, view};
