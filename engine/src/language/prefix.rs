//! Prefixes that were computed once and are shared. Accounts for who uses them; the cells themselves are the
//! model context's. Full: the least recently used one that nobody uses makes room.

use models::llama::Token;

/// Shorter common beginnings are not worth a look-up.
const SHARE_TOKENS_MIN: usize = 2;

/// A beginning that a prompt has in common with a kept prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// Names the prefix for [`Prefixes::release`].
    pub(super) key: u64,
    /// Sequence that holds it.
    pub(super) seq: u32,
    /// Tokens in common.
    pub(super) len: usize,
}

#[derive(Debug)]
struct Kept {
    key: u64,
    seq: u32,
    tokens: Vec<Token>,
    users: usize,
    used: u64,
}

/// All kept prefixes, few enough to look at each.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    kept: Vec<Kept>,
    clock: u64,
}

impl Prefixes {
    /// The longest beginning of `prompt` that is kept, leaving at least one token to compute. The caller uses
    /// it until [`Prefixes::release`].
    pub(super) fn acquire(&mut self, prompt: &[Token]) -> Option<Shared> {
        let common = |kept: &Kept| {
            let same = kept.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            same.min(prompt.len().saturating_sub(1))
        };
        self.clock += 1;
        let best = self.kept.iter_mut().max_by_key(|k| common(k))?;
        let len = common(best);
        if len < SHARE_TOKENS_MIN {
            return None;
        }
        best.users += 1;
        best.used = self.clock;
        Some(Shared { key: best.key, seq: best.seq, len })
    }

    /// One user less.
    pub(super) fn release(&mut self, key: u64) {
        if let Some(kept) = self.kept.iter_mut().find(|k| k.key == key) {
            kept.users = kept.users.saturating_sub(1);
        }
    }

    /// Whether all of `tokens` is the beginning of a kept prefix.
    pub(super) fn holds(&self, tokens: &[Token]) -> bool {
        self.kept.iter().any(|k| k.tokens.starts_with(tokens))
    }

    /// Keeps `tokens`, which sequence `seq` holds; one user, who gets its key.
    pub(super) fn keep(&mut self, seq: u32, tokens: &[Token]) -> u64 {
        self.clock += 1;
        let key = self.clock;
        self.kept.push(Kept { key, seq, tokens: tokens.to_vec(), users: 1, used: key });
        key
    }

    /// Forgets the least recently used prefix without users; gives its sequence, to be freed.
    pub(super) fn evict(&mut self) -> Option<u32> {
        let unused = self.kept.iter().enumerate().filter(|(_, k)| k.users == 0);
        let (at, _) = unused.min_by_key(|(_, k)| k.used)?;
        Some(self.kept.swap_remove(at).seq)
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Cells of those with users.
    pub(super) fn cells_shared(&self) -> usize {
        self.kept.iter().filter(|k| k.users > 0).map(|k| k.tokens.len()).sum()
    }

    /// Cells they hold.
    pub(super) fn cells(&self) -> usize {
        self.kept.iter().map(|k| k.tokens.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_common_beginning_is_shared_and_users_protect_it() {
        let mut prefixes = Prefixes::default();
        let a = prefixes.keep(10, &[1, 2, 3, 4]);
        let b = prefixes.keep(11, &[1, 2, 3, 4, 5, 6]);
        let shared = prefixes.acquire(&[1, 2, 3, 4, 5, 9]).unwrap();
        assert_eq!((shared.seq, shared.len), (11, 5));
        assert_eq!(prefixes.acquire(&[1, 2]).map(|s| s.len), None, "one token must be left");
        assert_eq!(prefixes.acquire(&[7, 8, 9]), None);
        assert!(prefixes.holds(&[1, 2]) && !prefixes.holds(&[2]));
        assert_eq!(prefixes.cells(), 10);

        prefixes.release(b);
        assert_eq!(prefixes.evict(), None, "both are in use");
        prefixes.release(shared.key);
        assert_eq!(prefixes.evict(), Some(11));
        prefixes.release(a);
        assert_eq!(prefixes.evict(), Some(10));
        assert_eq!(prefixes.len(), 0);
    }
}
