//! Which messages a subscriber wants.

use std::sync::Arc;

use media::StreamId;
use media::result::Status;

use super::journal::{Topic, TopicKind};

/// Which messages a subscriber wants; everything by default. Messages about streams (`stream/1`) are held to
/// `stream` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only of this stream.
    pub stream: Option<StreamId>,
    /// Only results of this status.
    pub status: Option<Status>,
    /// Only results with alerts.
    pub alerts: Option<AlertFilter>,
}

/// Which alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertFilter {
    /// Any.
    Any,
    /// The rule of this name.
    Named(Arc<str>),
}

impl Filter {
    /// Whether a message of this topic is wanted.
    pub(super) fn wants(&self, topic: &Topic) -> bool {
        if self.stream.as_ref().is_some_and(|stream| *stream != topic.stream) {
            return false;
        }
        match &topic.kind {
            TopicKind::State => true,
            TopicKind::Result { status, alerts } => {
                self.status.is_none_or(|wanted| wanted == *status)
                    && match &self.alerts {
                        None => true,
                        Some(AlertFilter::Any) => !alerts.is_empty(),
                        Some(AlertFilter::Named(name)) => alerts.contains(name),
                    }
            }
        }
    }
}
