//! What can be told from words alone, without a language model: tone, language, keywords, the telling sentence,
//! whether a summary is supported by its source, and sentence embeddings.
//!
//! Everything but [`Embedder`] is a pure function, cheap (well under a millisecond for a transcript of minutes)
//! and deterministic. Made for English; other languages pass through without harm. Text is data: nothing in it
//! changes what is done with it.

mod embed;
mod extract;
mod identify;
mod stop;
mod text;
mod tone;

pub use embed::{EMBEDDING_WIDTH, Embedder, similarity};
pub use extract::{best_sentence, keywords, supported_by};
pub use identify::{TextLanguage, language_of_text};
pub use text::sentences;
pub use tone::sentiment;
