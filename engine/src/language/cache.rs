//! Answers that were given before, for requests that come again.
//!
//! Its neighbour is `cached`, the backend in front of which it stands. Bounded by bytes and by age; the one rule: only
//! what the same request would be answered again is kept, and what was cut short is not.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use media::Mono;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::backend::{GenerateRequest, ScoreRequest};

/// Hash of model, prompt and everything that decides an answer.
pub(super) type Key = [u8; 32];

/// Sizes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// All answers together; the least recently used make room.
    pub bytes_max: usize,
    /// An answer is forgotten at this age.
    pub age_max: Duration,
}

impl Default for CacheLimits {
    /// 16 MiB, 10 minutes.
    fn default() -> Self {
        CacheLimits { bytes_max: 16 << 20, age_max: Duration::from_secs(600) }
    }
}

#[derive(Debug)]
struct Kept<T> {
    value: T,
    bytes: usize,
    since: Mono,
    used: u64,
}

/// What is kept, with its order of use.
#[derive(Debug)]
pub(super) struct Cache<T> {
    limits: CacheLimits,
    kept: HashMap<Key, Kept<T>>,
    by_use: BTreeMap<u64, Key>,
    bytes: usize,
    uses: u64,
}

impl<T: Clone> Cache<T> {
    pub(super) fn new(limits: CacheLimits) -> Self {
        let (kept, by_use) = Default::default();
        Cache { limits, kept, by_use, bytes: 0, uses: 0 }
    }

    pub(super) fn get(&mut self, now: Mono, key: &Key) -> Option<T> {
        let kept = self.kept.get(key)?;
        if now.since(kept.since) >= self.limits.age_max {
            self.forget(key);
            return None;
        }
        self.uses += 1;
        let kept = self.kept.get_mut(key)?;
        self.by_use.remove(&kept.used);
        kept.used = self.uses;
        self.by_use.insert(kept.used, *key);
        Some(kept.value.clone())
    }

    /// Keeps `value`, which takes `bytes`; nothing larger than the cache.
    pub(super) fn put(&mut self, now: Mono, key: Key, value: T, bytes: usize) {
        self.forget(&key);
        let bytes = bytes + size_of::<Kept<T>>() + 2 * size_of::<Key>();
        if bytes > self.limits.bytes_max {
            return;
        }
        while self.bytes + bytes > self.limits.bytes_max {
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            let oldest = *oldest;
            self.forget(&oldest);
        }
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, key);
        self.kept.insert(key, Kept { value, bytes, since: now, used: self.uses });
    }

    fn forget(&mut self, key: &Key) {
        if let Some(kept) = self.kept.remove(key) {
            self.bytes -= kept.bytes;
            self.by_use.remove(&kept.used);
        }
    }
}

/// The key of a request whose answer is always the same; none when it is drawn by chance.
pub(super) fn key_of_generate(model: &str, request: &GenerateRequest) -> Option<Key> {
    let is_certain = request.sampling.temperature == 0.0 || request.sampling.seed.is_some();
    // Neither changes what is answered, only when.
    let asked = GenerateRequest { priority: 0, time_limit_ms: None, ..request.clone() };
    is_certain.then(|| hash("generate", model, &asked)).flatten()
}

pub(super) fn key_of_score(model: &str, request: &ScoreRequest) -> Option<Key> {
    let asked = ScoreRequest { priority: 0, time_limit_ms: None, ..request.clone() };
    hash("score", model, &asked)
}

fn hash(kind: &str, model: &str, asked: &impl Serialize) -> Option<Key> {
    let mut digest = Sha256::new();
    for part in [kind, model] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    // A request that can't be written down is none that comes again.
    digest.update(serde_json::to_vec(asked).ok()?);
    Some(digest.finalize().into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::backend::{Prompt, Sampling};
    use super::*;

    fn cache(bytes_max: usize) -> Cache<u32> {
        Cache::new(CacheLimits { bytes_max, age_max: Duration::from_secs(10) })
    }

    #[test]
    fn an_answer_is_there_until_it_is_too_old() {
        let mut cache = cache(10_000);
        cache.put(Mono::from_ms(0), [1; 32], 7, 100);
        assert_eq!(cache.get(Mono::from_ms(9_999), &[1; 32]), Some(7));
        assert_eq!(cache.get(Mono::from_ms(10_000), &[1; 32]), None);
        assert_eq!((cache.bytes, cache.by_use.len()), (0, 0));
    }

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut cache = cache(1_000);
        let now = Mono::from_ms(0);
        cache.put(now, [1; 32], 1, 300);
        cache.put(now, [2; 32], 2, 300);
        cache.get(now, &[1; 32]);
        cache.put(now, [3; 32], 3, 300);
        assert_eq!([1, 2, 3].map(|n| cache.get(now, &[n; 32])), [Some(1), None, Some(3)]);
        cache.put(now, [4; 32], 4, 2_000);
        assert_eq!(cache.get(now, &[4; 32]), None, "larger than the cache");
        assert_eq!(cache.get(now, &[3; 32]), Some(3), "and costs nobody a place");
    }

    #[test]
    fn the_key_is_of_what_decides_the_answer() {
        let ask = |text: &str| GenerateRequest::new(Prompt::template(text), 8);
        let key = |request: &GenerateRequest| key_of_generate("m", request);
        assert_eq!(key(&ask("a")), key(&GenerateRequest { priority: 3, ..ask("a") }));
        assert_ne!(key(&ask("a")), key(&ask("b")));
        assert_ne!(key(&ask("a")), key_of_generate("n", &ask("a")));
        assert_ne!(key(&ask("a")), key(&GenerateRequest { tokens_max: 9, ..ask("a") }));
        let salted = GenerateRequest { cache_salt: Some("x".into()), ..ask("a") };
        assert_ne!(key(&ask("a")), key(&salted));
        let drawn = |seed| GenerateRequest {
            sampling: Sampling { temperature: 1.0, seed, ..Sampling::default() },
            ..ask("a")
        };
        assert_eq!(key(&drawn(None)), None);
        assert!(key(&drawn(Some(1))).is_some() && key(&drawn(Some(1))) != key(&drawn(Some(2))));
    }

    proptest! {
        #[test]
        fn it_never_holds_more_than_it_may(
            steps in prop::collection::vec((0u8..20, 0usize..600, 0u64..30_000, any::<bool>()), 0..200)
        ) {
            let mut cache = cache(2_000);
            let mut now = Mono::from_ms(0);
            for (key, bytes, passed, puts) in steps {
                now = now + Duration::from_millis(passed / 10);
                if puts {
                    cache.put(now, [key; 32], u32::from(key), bytes);
                } else if let Some(value) = cache.get(now, &[key; 32]) {
                    prop_assert_eq!(value, u32::from(key));
                }
                prop_assert!(cache.bytes <= 2_000);
                prop_assert_eq!(cache.bytes, cache.kept.values().map(|k| k.bytes).sum::<usize>());
                prop_assert_eq!(cache.kept.len(), cache.by_use.len());
            }
        }
    }
}
