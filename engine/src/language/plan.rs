//! Decides what goes into the next step. Pure: knows neither the model nor the time.
//!
//! Every request catches up to its token count within a token budget. More urgent ones go first; an urgent one
//! (priority below 0) that still reads its prompt has the step to itself.

/// What a request could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Want {
    /// Lower goes first.
    pub(super) priority: i32,
    /// Earlier goes first among equals.
    pub(super) arrival: u64,
    /// Tokens it is behind; one for a request that generates.
    pub(super) tokens: usize,
    /// All of `tokens` in one step, or none.
    pub(super) whole: bool,
}

impl Want {
    fn generates(&self) -> bool {
        self.tokens == 1 && !self.whole
    }
}

/// Sizes of a step, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Prompt tokens of a step, over all requests.
    pub(super) chunk: usize,
    /// Prompt tokens of a step that an urgent request has to itself.
    pub(super) chunk_urgent: usize,
    /// All tokens of a step.
    pub(super) batch: usize,
}

/// Prompt tokens that others may read beside an urgent request that generates, so that they don't starve.
const CHUNK_BESIDE_URGENT: usize = 8;

/// Which requests take part, by position, with how many tokens. Never empty unless `wants` is.
pub(super) fn plan(wants: &[Want], limits: &Limits) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..wants.len()).filter(|&i| wants[i].tokens > 0).collect();
    order.sort_by_key(|&i| (wants[i].priority, wants[i].arrival));
    let Some(&first) = order.first() else {
        return Vec::new();
    };
    let top = wants[first];
    let urgent = top.priority < 0;
    let exclusive = urgent && !top.generates();

    let mut room = limits.batch;
    let mut budget = if exclusive { limits.chunk_urgent } else { limits.chunk };
    let mut budget_beside = CHUNK_BESIDE_URGENT;
    let mut steps = Vec::new();
    for i in order {
        let want = wants[i];
        let beside = urgent && want.priority >= 0;
        if exclusive && want.priority > top.priority {
            break;
        }
        let allowed = match (want.generates(), beside) {
            (true, _) => 1,
            (false, false) => budget,
            (false, true) => budget.min(budget_beside),
        }
        .min(room);
        let n = match want.whole {
            // The first in order always gets on, or a group larger than the budget would wait for ever.
            true if want.tokens <= allowed || (i == first && want.tokens <= room) => want.tokens,
            true => 0,
            false => want.tokens.min(allowed),
        };
        if n == 0 {
            continue;
        }
        if !want.generates() {
            budget = budget.saturating_sub(n);
            if beside {
                budget_beside = budget_beside.saturating_sub(n);
            }
        }
        room -= n;
        steps.push((i, n));
    }
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { chunk: 64, chunk_urgent: 256, batch: 512 };

    fn want(priority: i32, arrival: u64, tokens: usize) -> Want {
        Want { priority, arrival, tokens, whole: false }
    }

    #[test]
    fn generating_requests_join_a_chunk_of_a_prompt() {
        let wants = [want(0, 0, 300), want(0, 1, 1), want(5, 2, 1)];
        assert_eq!(plan(&wants, &LIMITS), [(0, 64), (1, 1), (2, 1)]);
    }

    #[test]
    fn an_urgent_prompt_has_the_step_to_itself_then_the_others_decode_beside_it() {
        let wants = [want(0, 0, 300), want(0, 1, 1), want(-5, 2, 100)];
        assert_eq!(plan(&wants, &LIMITS), [(2, 100)]);
        let wants = [want(0, 0, 300), want(0, 1, 1), want(-5, 2, 1)];
        assert_eq!(plan(&wants, &LIMITS), [(2, 1), (0, 8), (1, 1)]);
    }

    #[test]
    fn a_group_is_never_split() {
        let group = Want { whole: true, ..want(0, 1, 20) };
        assert_eq!(plan(&[want(0, 0, 50), group], &LIMITS), [(0, 50)]);
        assert_eq!(plan(&[want(1, 0, 50), group], &LIMITS), [(1, 20), (0, 44)]);
    }

    proptest! {
        #[test]
        fn a_step_moves_the_most_urgent_and_stays_within_its_size(
            raw in prop::collection::vec((-3i32..4, 1usize..400, prop::bool::weighted(0.2)), 1..24)
        ) {
            let wants: Vec<Want> = raw.iter().enumerate().map(|(i, &(priority, tokens, whole))| {
                let tokens = if whole { tokens.min(LIMITS.chunk) } else { tokens };
                Want { priority, arrival: i as u64, tokens, whole }
            }).collect();
            let steps = plan(&wants, &LIMITS);
            let first = (0..wants.len()).min_by_key(|&i| (wants[i].priority, wants[i].arrival)).unwrap();
            prop_assert_eq!(steps[0].0, first);
            prop_assert!(steps.iter().map(|s| s.1).sum::<usize>() <= LIMITS.batch);
            for &(i, n) in &steps {
                prop_assert!(n >= 1 && n <= wants[i].tokens);
                prop_assert!(!wants[i].whole || n == wants[i].tokens);
            }
            let prompts: usize = steps.iter().filter(|s| !wants[s.0].generates()).map(|s| s.1).sum();
            prop_assert!(prompts <= LIMITS.chunk_urgent.max(LIMITS.chunk));
        }
    }
}
