//! A subscriber's end of the hub.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use media::result::Gap;
use tokio_stream::Stream;

use super::state::{Missed, Next};
use super::{Shared, lock};

/// One message for a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Of a result or state; none for a gap.
    pub seq: Option<u64>,
    /// Its JSON, without a line end.
    pub json: Bytes,
}

/// Yields what its filter lets through, in order of `seq`. Dropping it unsubscribes. Ends after
/// [`Hub::close`](super::Hub::close) when everything was read.
pub struct Subscription {
    shared: Arc<Shared>,
    id: u64,
}

impl Subscription {
    pub(super) fn new(shared: Arc<Shared>, id: u64) -> Self {
        Subscription { shared, id }
    }

    /// The next message with its `seq`; none at the end.
    pub async fn recv(&mut self) -> Option<Delivery> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`Subscription::recv`], to be polled.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let next = lock(&self.shared.state).next(self.id, cx.waker());
        match next {
            Next::Wait => Poll::Pending,
            Next::End => Poll::Ready(None),
            Next::Message { seq, json } => Poll::Ready(Some(Delivery { seq: Some(seq), json })),
            Next::Gap(missed) => Poll::Ready(Some(Delivery { seq: None, json: self.gap(missed) })),
        }
    }

    fn gap(&self, Missed { from, to, count, reason }: Missed) -> Bytes {
        let run = Arc::clone(&self.shared.run);
        let gap = Gap { schema: Arc::from("gap/1"), run, from, to, count, reason };
        // Numbers and plain text: this has no way to fail, and an empty message would still be a message.
        serde_json::to_vec(&gap).map(Bytes::from).unwrap_or_default()
    }
}

impl Stream for Subscription {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.poll_recv(cx).map(|next| next.map(|delivery| delivery.json))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        lock(&self.shared.state).unsubscribe(self.id);
    }
}
