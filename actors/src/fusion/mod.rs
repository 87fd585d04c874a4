//! Fusing: everything that was seen, heard and read in one window becomes one answer.
//!
//! Pure: `book` decides when a window's answer goes out, `window` puts its contents together, `pooling` weighs
//! the evidence of all modalities, `alerts` judges the result by the user's rules. Its neighbours are the
//! stages before it and the publisher behind it; it never sees either. Nothing here reads a clock.

mod alerts;
mod book;
mod ledger;
mod objects;
mod pooling;
mod rules;
mod screen;
mod settings;
mod taxonomy;
mod window;

pub use alerts::{AlertError, Alerts, RuleFault};
pub use book::FusionBook;
pub use ledger::{Ledger, ObservationCounts, WindowCounts};
pub use pooling::Evidence;
pub use settings::{BookSettings, EMIT_MARGIN, Emit, ExpectedStage, Outcome};
pub use taxonomy::{Taxonomy, TaxonomyError};
pub use window::WindowContents;
