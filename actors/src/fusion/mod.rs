//! Fusing: everything that was seen, heard and read in one window becomes one answer.
//!
//! Pure: `book` decides when a window's answer goes out, `window` puts its contents together, `pooling` weighs
//! the evidence of all modalities, `alerts` judges the result by the user's rules. Its neighbours are the
//! stages before it and the publisher behind it; it never sees either. Nothing here reads a clock.

pub mod alerts;
pub mod book;
mod ledger;
mod objects;
pub mod pooling;
mod rules;
mod screen;
mod window;

pub use alerts::{AlertError, Alerts, RuleFault};
pub use book::{BookSettings, Emit, ExpectedStage, FusionBook, Outcome};
pub use ledger::{Ledger, ObservationCounts, WindowCounts};
pub use pooling::{Evidence, Taxonomy, TaxonomyError};
pub use window::WindowContents;
