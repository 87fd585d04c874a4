use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SIZE: PoolSize = PoolSize { cells: 24 * 16, sequences: 10, kept: 5, cached_cells: 20 * 16 };

fn wish(tokens: &[Token], reserve: usize) -> Wish<'_> {
    Wish { tokens, salt: None, reserve, reuse: 0, parked: None }
}

fn text(from: Token, n: usize) -> Vec<Token> {
    (from..).take(n).collect()
}

/// Runs a request from admission to its end, with all its tokens computed.
fn run(blocks: &mut Blocks, tokens: &[Token], reuse: usize) -> Granted {
    let granted = blocks.admit(&Wish { reuse, ..wish(tokens, tokens.len()) }).unwrap();
    blocks.computed(granted.seq, tokens);
    blocks.keep(granted.seq);
    granted
}

#[test]
fn the_next_request_shares_the_longest_beginning_to_the_token() {
    let mut blocks = Blocks::new(SIZE);
    let first = run(&mut blocks, &text(0, 40), 0);
    assert_eq!(first.shared, None);
    let mut other = text(0, 37);
    other.extend(text(500, 10));
    let second = blocks.admit(&wish(&other, 60)).unwrap();
    assert_eq!(second.shared, Some(Shared { from: first.seq, len: 37 }));
    // Two full blocks are common, the third and fourth are its own.
    assert_eq!(blocks.cells_used(), (3 + 2) * 16);
    assert_eq!(blocks.cells_cached(), 16);

    let same = blocks.admit(&wish(&text(0, 40), 40)).unwrap();
    assert_eq!(same.shared.unwrap().len, 39, "one token must be left to compute");
    assert_eq!(blocks.admit(&wish(&text(0, 15), 15)).unwrap().shared, None, "less than a block");
}

#[test]
fn salts_separate_and_running_requests_are_shared_from() {
    let mut blocks = Blocks::new(SIZE);
    let tokens = text(0, 40);
    let a: Arc<str> = "a".into();
    let salted = Wish { salt: Some(&a), ..wish(&tokens, 48) };
    let first = blocks.admit(&salted).unwrap();
    blocks.computed(first.seq, &tokens[..32]);
    assert_eq!(blocks.admit(&wish(&tokens, 48)).unwrap().shared, None);
    let second = blocks.admit(&salted).unwrap();
    assert_eq!(second.shared, Some(Shared { from: first.seq, len: 32 }));
}

#[test]
fn what_was_never_shared_goes_first_and_what_is_known_to_come_again_last() {
    let mut blocks = Blocks::new(SIZE);
    let known = run(&mut blocks, &text(0, 64), 32);
    let once = run(&mut blocks, &text(1000, 64), 0);
    let big = blocks.admit(&wish(&text(2000, 18 * 16), 18 * 16)).unwrap();
    // The older tail first, though its beginning stays; then the newer one from its end.
    let cut = |seq, len| Cut { seq, len, parked: None };
    assert_eq!(big.cuts, [cut(known.seq, 32)]);
    blocks.computed(big.seq, &text(2000, 16));
    blocks.remove(big.seq);
    let big = blocks.admit(&wish(&text(2000, 21 * 16), 21 * 16)).unwrap();
    assert_eq!(big.cuts, [cut(once.seq, 16)]);
    blocks.remove(big.seq);
    let big = blocks.admit(&wish(&text(2000, 24 * 16), 24 * 16)).unwrap();
    assert_eq!(big.cuts, [cut(once.seq, 0), cut(known.seq, 0)]);
    assert!(blocks.admit(&wish(&[1], 1)).is_none(), "all of it is promised");
}

#[test]
fn a_kept_request_that_another_contains_is_not_kept_twice() {
    let mut blocks = Blocks::new(SIZE);
    run(&mut blocks, &text(0, 40), 0);
    run(&mut blocks, &text(0, 80), 0);
    assert_eq!((blocks.kept(), blocks.cells_used()), (1, 80));
    run(&mut blocks, &text(0, 50), 0);
    assert_eq!((blocks.kept(), blocks.cells_used()), (1, 80));
}

#[test]
fn what_is_kept_stays_within_its_bound() {
    let mut blocks = Blocks::new(PoolSize { cached_cells: 4 * 16, ..SIZE });
    for from in [0, 1000, 2000, 3000] {
        run(&mut blocks, &text(from, 48), 0);
        assert!(blocks.cells_cached() <= 4 * 16);
    }
    let newest = blocks.admit(&wish(&text(3000, 48), 48)).unwrap();
    assert_eq!(newest.shared.unwrap().len, 47);
}

#[test]
fn a_parked_request_goes_on_where_it_was_and_is_given_up_last() {
    let mut blocks = Blocks::new(SIZE);
    let tokens = text(0, 40);
    let first = blocks.admit(&wish(&tokens, 160)).unwrap();
    blocks.computed(first.seq, &tokens);
    assert_eq!(blocks.cells_used(), 160);
    assert_eq!(blocks.park(first.seq, 7), []);
    assert_eq!(blocks.cells_used(), 48);
    let parked = Some(first.seq);
    let back = blocks.admit(&Wish { parked, ..wish(&tokens, 160) }).unwrap();
    assert_eq!(back, Granted { seq: first.seq, shared: None, cuts: vec![] });
    assert_eq!(blocks.cells_used(), 160);

    blocks.park(first.seq, 7);
    run(&mut blocks, &text(1000, 64), 64);
    let big = blocks.admit(&wish(&text(2000, 384), 384)).unwrap();
    assert_eq!(big.cuts.last(), Some(&Cut { seq: first.seq, len: 0, parked: Some(7) }));
}

/// What a mix of events is made of. Positions are taken modulo what is there.
#[derive(Clone, Debug)]
enum Event {
    Admit { family: usize, common: usize, tail: Token, more: usize, answer: usize, salt: usize },
    Grow { at: usize, tokens: usize },
    Finish { at: usize },
    Fail { at: usize },
    Park { at: usize },
    Resume { at: usize },
    Leave { at: usize },
    DropCached,
}

fn event() -> impl Strategy<Value = Event> {
    let admit = (0..3usize, 0..90usize, 0..4i32, 0..40usize, 1..60usize, 0..3usize);
    let at = 0..16usize;
    prop_oneof![
        6 => admit.prop_map(|(family, common, tail, more, answer, salt)| {
            Event::Admit { family, common, tail, more, answer, salt }
        }),
        8 => (at.clone(), 1..80usize).prop_map(|(at, tokens)| Event::Grow { at, tokens }),
        4 => at.clone().prop_map(|at| Event::Finish { at }),
        1 => at.clone().prop_map(|at| Event::Fail { at }),
        2 => at.clone().prop_map(|at| Event::Park { at }),
        2 => at.clone().prop_map(|at| Event::Resume { at }),
        1 => at.prop_map(|at| Event::Leave { at }),
        1 => Just(Event::DropCached),
    ]
}

#[derive(Clone, Debug)]
struct Request {
    id: u64,
    tokens: Vec<Token>,
    computed: usize,
    reserve: usize,
    salt: Option<Arc<str>>,
    seq: u32,
    parked: Option<u32>,
}

/// A pool with its accounting, and beside it what a model context would do: cells with one token each, which any
/// number of sequences refer to.
struct World {
    blocks: Blocks,
    cells: BTreeMap<u32, Vec<(u64, Token)>>,
    cells_made: u64,
    running: Vec<Request>,
    waiting: Vec<Request>,
    salts: BTreeMap<u32, Option<Arc<str>>>,
}

impl World {
    fn new() -> Self {
        World {
            blocks: Blocks::new(SIZE),
            cells: BTreeMap::new(),
            cells_made: 0,
            running: Vec::new(),
            waiting: Vec::new(),
            salts: BTreeMap::new(),
        }
    }

    fn cut(&mut self, cuts: Vec<Cut>) {
        for Cut { seq, len, parked } in cuts {
            let cells = self.cells.get_mut(&seq).unwrap();
            assert!(len <= cells.len(), "a cut never lengthens");
            assert!(!self.running.iter().any(|r| r.seq == seq), "a running request is never cut");
            cells.truncate(len);
            if len == 0 {
                self.cells.remove(&seq);
            }
            for request in self.waiting.iter_mut().filter(|r| r.parked == Some(seq)) {
                assert_eq!(parked, Some(request.id), "whoever waits for it is named");
                request.parked = None;
                request.computed = 0;
            }
        }
    }

    fn start(&mut self, mut request: Request) {
        let wish = Wish {
            tokens: &request.tokens,
            salt: request.salt.as_ref(),
            reserve: request.reserve,
            reuse: 0,
            parked: request.parked,
        };
        let Some(granted) = self.blocks.admit(&wish) else {
            if request.parked.is_some() {
                self.waiting.push(request);
            }
            return;
        };
        if let Some(Shared { from, len }) = granted.shared {
            let beginning = self.cells[&from][..len].to_vec();
            let shared: Vec<Token> = beginning.iter().map(|c| c.1).collect();
            assert_eq!(shared, request.tokens[..len], "what is shared is what was asked for");
            assert_eq!(self.salts[&from], request.salt, "salts never mix");
            assert!(len < request.tokens.len());
            self.cells.insert(granted.seq, beginning);
            request.computed = len;
        } else if request.parked.is_none() {
            self.cells.insert(granted.seq, Vec::new());
            request.computed = 0;
        }
        request.seq = granted.seq;
        request.parked = None;
        self.salts.insert(granted.seq, request.salt.clone());
        self.running.push(request);
        self.cut(granted.cuts);
    }

    fn apply(&mut self, id: u64, event: Event) {
        let at = |at: usize, of: usize| at.checked_rem(of);
        match event {
            Event::Admit { family, common, tail, more, answer, salt } => {
                let mut tokens = text(family as Token * 1000, common);
                tokens.extend(text(10_000 + tail * 100, more + 1));
                let reserve = tokens.len() + answer;
                let salt = [None, Some("a"), Some("b")][salt].map(Arc::from);
                let (seq, parked) = (0, None);
                let computed = 0;
                self.start(Request { id, tokens, computed, reserve, salt, seq, parked });
            }
            Event::Grow { at: i, tokens } => {
                let Some(i) = at(i, self.running.len()) else { return };
                let request = &mut self.running[i];
                for _ in 0..tokens {
                    if request.computed == request.tokens.len() {
                        if request.tokens.len() == request.reserve {
                            break;
                        }
                        request.tokens.push(request.id as Token);
                    }
                    self.cells_made += 1;
                    let cell = (self.cells_made, request.tokens[request.computed]);
                    self.cells.get_mut(&request.seq).unwrap().push(cell);
                    request.computed += 1;
                }
                self.blocks.computed(request.seq, &request.tokens[..request.computed]);
            }
            Event::Finish { at: i } => {
                let Some(i) = at(i, self.running.len()) else { return };
                let request = self.running.swap_remove(i);
                let cuts = self.blocks.keep(request.seq);
                self.cut(cuts);
            }
            Event::Fail { at: i } => {
                let Some(i) = at(i, self.running.len()) else { return };
                let request = self.running.swap_remove(i);
                let cut = self.blocks.remove(request.seq);
                self.cut(cut.into_iter().collect());
            }
            Event::Park { at: i } => {
                let Some(i) = at(i, self.running.len()) else { return };
                let mut request = self.running.swap_remove(i);
                request.parked = Some(request.seq);
                let (seq, id) = (request.seq, request.id);
                self.waiting.push(request);
                let cuts = self.blocks.park(seq, id);
                self.cut(cuts);
            }
            Event::Resume { at: i } => {
                let Some(i) = at(i, self.waiting.len()) else { return };
                let request = self.waiting.swap_remove(i);
                self.start(request);
            }
            Event::Leave { at: i } => {
                let Some(i) = at(i, self.waiting.len()) else { return };
                let request = self.waiting.swap_remove(i);
                if let Some(seq) = request.parked {
                    let cuts = self.blocks.unpark(seq);
                    self.cut(cuts);
                }
            }
            Event::DropCached => {
                let cuts = self.blocks.drop_cached();
                self.cut(cuts);
            }
        }
    }

    fn check(&self) {
        let blocks = &self.blocks;
        let mut refs = vec![0_u16; blocks.refs.len()];
        for (seq, holder) in &blocks.holders {
            let cells: Vec<Token> = self.cells[seq].iter().map(|c| c.1).collect();
            assert_eq!(cells, holder.tokens, "the accounting knows what a sequence holds");
            assert!(holder.tokens.len() <= holder.table.len() * BLOCK_TOKENS);
            assert_eq!(holder.chain.len(), holder.tokens.len() / BLOCK_TOKENS);
            for link in &holder.chain {
                assert!(blocks.index[link].contains(seq));
            }
            let distinct: BTreeSet<u32> = holder.table.iter().copied().collect();
            assert_eq!(distinct.len(), holder.table.len());
            holder.table.iter().for_each(|&b| refs[b as usize] += 1);
        }
        assert_eq!(refs, blocks.refs, "counts equal the holders");
        let free: BTreeSet<u32> = blocks.free.iter().copied().collect();
        assert_eq!(free.len(), blocks.free.len());
        assert!(free.iter().all(|&b| refs[b as usize] == 0));
        assert_eq!(free.len() + refs.iter().filter(|&&r| r > 0).count(), refs.len());
        let indexed: usize = blocks.index.values().map(Vec::len).sum();
        assert_eq!(indexed, blocks.holders.values().map(|h| h.chain.len()).sum::<usize>());
        assert_eq!(blocks.free_seqs.len() + blocks.holders.len(), SIZE.sequences);
        assert!(blocks.kept() <= SIZE.kept);
        let cells: BTreeSet<u64> = self.cells.values().flatten().map(|c| c.0).collect();
        assert!(cells.len() <= blocks.cells_used(), "cells that are there are accounted for");
        for request in &self.running {
            assert_eq!(self.cells[&request.seq].len(), request.computed);
            assert!(blocks.holders[&request.seq].table.len() * BLOCK_TOKENS >= request.reserve);
        }
    }
}

proptest! {
    #[test]
    fn any_mix_of_events_leaves_the_pool_whole(events in prop::collection::vec(event(), 1..120)) {
        let mut world = World::new();
        for (id, event) in events.into_iter().enumerate() {
            // As many places as sequences are left for running requests.
            let admits = matches!(event, Event::Admit { .. } | Event::Resume { .. });
            if admits && world.running.len() == SIZE.sequences - SIZE.kept {
                continue;
            }
            world.apply(20_000 + id as u64, event);
            world.check();
        }
        while !world.running.is_empty() {
            world.apply(0, Event::Finish { at: 0 });
            world.check();
        }
        while !world.waiting.is_empty() {
            world.apply(0, Event::Leave { at: 0 });
            world.check();
        }
        world.apply(0, Event::DropCached);
        world.check();
        prop_assert_eq!(world.blocks.cells_used(), 0);
        prop_assert_eq!(world.blocks.free.len(), 24);
        prop_assert!(world.blocks.index.is_empty() && world.cells.is_empty());
    }
}
