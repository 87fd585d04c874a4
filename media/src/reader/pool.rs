//! Pixel buffers that are used again: freeing and faulting in a picture each time costs more than scaling it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers kept for reuse; more than these in flight are simply freed when their last holder is done.
const IDLE_MAX: usize = 16;

/// A source's buffers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct PixelPool(Arc<Mutex<Vec<Vec<u8>>>>);

impl PixelPool {
    /// `len` bytes filled by `fill`; they come back to the pool when the last holder drops them.
    pub(super) fn fill(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Bytes {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pixels = idle.pop().unwrap_or_default();
        drop(idle);
        pixels.resize(len, 0);
        fill(&mut pixels);
        Bytes::from_owner(Pooled { pixels, pool: self.clone() })
    }
}

struct Pooled {
    pixels: Vec<u8>,
    pool: PixelPool,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.pixels
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut idle = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(std::mem::take(&mut self.pixels));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again() {
        let pool = PixelPool::default();
        let first = pool.fill(12, |b| b.fill(7));
        assert_eq!(&first[..], [7; 12]);
        let address = first.as_ptr();
        let copy = first.clone();
        drop(first);
        assert_ne!(pool.fill(12, |_| {}).as_ptr(), address, "still held by the copy");
        drop(copy);
        let again: Vec<Bytes> = (0..2).map(|_| pool.fill(12, |b| b.fill(1))).collect();
        assert!(again.iter().any(|b| b.as_ptr() == address));
    }

    #[test]
    fn idle_buffers_are_bounded() {
        let pool = PixelPool::default();
        let held: Vec<Bytes> = (0..100).map(|_| pool.fill(3, |_| {})).collect();
        drop(held);
        assert_eq!(pool.0.lock().unwrap().len(), IDLE_MAX);
    }
}
