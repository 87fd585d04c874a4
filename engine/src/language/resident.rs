//! Which of the known models are in memory: who makes room for whom, and who is loaded ahead. Pure.
//!
//! Its neighbour is `pool`, which loads and lets go. The one rule: a model in use is never let go.

use std::collections::BTreeMap;

/// A model's number in the pool.
pub(super) type Index = usize;

#[derive(Clone, Debug)]
struct Known {
    mb: u64,
    is_resident: bool,
    users: usize,
    used: u64,
}

/// What is to be done so that a model can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is there.
    Use,
    /// It can be loaded once these are let go.
    Load(Vec<Index>),
    /// Those in use leave no room: wait until one of them is free.
    Wait,
    /// It is larger than all the memory there is for models.
    TooLarge,
}

/// The known models, the memory they may take, and in which order they were asked for.
#[derive(Clone, Debug)]
pub(super) struct Residents {
    models: Vec<Known>,
    mb_max: u64,
    uses: u64,
    last: Option<Index>,
    /// How often a model was asked for right after another.
    follows: BTreeMap<Index, BTreeMap<Index, u64>>,
    predicted: Option<Index>,
    pub(super) predictions: u64,
    pub(super) predictions_right: u64,
}

impl Residents {
    /// Models with their sizes, and what they may take together.
    pub(super) fn new(sizes_mb: &[u64], mb_max: u64) -> Self {
        let known = |&mb| Known { mb, is_resident: false, users: 0, used: 0 };
        Residents {
            models: sizes_mb.iter().map(known).collect(),
            mb_max,
            uses: 0,
            last: None,
            follows: BTreeMap::new(),
            predicted: None,
            predictions: 0,
            predictions_right: 0,
        }
    }

    /// A request asks for `model`. Counts what follows what.
    pub(super) fn asked(&mut self, model: Index) {
        if let Some(last) = self.last.replace(model) {
            *self.follows.entry(last).or_default().entry(model).or_default() += 1;
        }
        if let Some(predicted) = self.predicted.take() {
            self.predictions += 1;
            self.predictions_right += u64::from(predicted == model);
        }
    }

    /// How `model` can be used.
    pub(super) fn plan(&self, model: Index) -> Plan {
        let Some(wanted) = self.models.get(model) else { return Plan::TooLarge };
        if wanted.is_resident {
            return Plan::Use;
        }
        if wanted.mb > self.mb_max {
            return Plan::TooLarge;
        }
        let mut left = self.mb_max.saturating_sub(self.mb());
        let mut idle: Vec<Index> = (0..self.models.len())
            .filter(|&i| self.models[i].is_resident && self.models[i].users == 0)
            .collect();
        idle.sort_by_key(|&i| self.models[i].used);
        let mut gone = Vec::new();
        for i in idle {
            if left >= wanted.mb {
                break;
            }
            left += self.models[i].mb;
            gone.push(i);
        }
        if left >= wanted.mb { Plan::Load(gone) } else { Plan::Wait }
    }

    /// The model that most often follows the last one asked for, if that was so at least half of the time and it can be
    /// loaded without letting go of the last one.
    pub(super) fn ahead(&mut self) -> Option<(Index, Vec<Index>)> {
        let follows = self.follows.get(&self.last?)?;
        let all: u64 = follows.values().sum();
        let (&next, &count) = follows.iter().max_by_key(|(_, count)| **count)?;
        if count * 2 < all {
            return None;
        }
        self.predicted = Some(next);
        match self.plan(next) {
            Plan::Load(gone) if !gone.contains(&self.last?) => Some((next, gone)),
            _ => None,
        }
    }

    pub(super) fn loaded(&mut self, model: Index) {
        if let Some(known) = self.models.get_mut(model) {
            known.is_resident = true;
        }
    }

    pub(super) fn let_go(&mut self, model: Index) {
        if let Some(known) = self.models.get_mut(model) {
            known.is_resident = false;
        }
    }

    pub(super) fn enter(&mut self, model: Index) {
        self.uses += 1;
        if let Some(known) = self.models.get_mut(model) {
            known.users += 1;
            known.used = self.uses;
        }
    }

    pub(super) fn leave(&mut self, model: Index) {
        if let Some(known) = self.models.get_mut(model) {
            known.users = known.users.saturating_sub(1);
        }
    }

    #[cfg(test)]
    fn is_resident(&self, model: Index) -> bool {
        self.models.get(model).is_some_and(|m| m.is_resident)
    }

    /// What those in memory take.
    pub(super) fn mb(&self) -> u64 {
        self.models.iter().filter(|m| m.is_resident).map(|m| m.mb).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn used(residents: &mut Residents, model: Index) -> bool {
        residents.asked(model);
        let was_there = residents.is_resident(model);
        match residents.plan(model) {
            Plan::Use => {}
            Plan::Load(gone) => {
                gone.into_iter().for_each(|i| residents.let_go(i));
                residents.loaded(model);
            }
            other => panic!("{other:?}"),
        }
        residents.enter(model);
        residents.leave(model);
        was_there
    }

    #[test]
    fn the_least_recently_used_goes_and_one_in_use_stays() {
        let mut residents = Residents::new(&[100, 100, 100, 250], 250);
        used(&mut residents, 0);
        used(&mut residents, 1);
        used(&mut residents, 0);
        assert_eq!(residents.plan(2), Plan::Load(vec![1]));
        residents.enter(1);
        assert_eq!(residents.plan(2), Plan::Load(vec![0]));
        assert_eq!(residents.plan(3), Plan::Wait);
        residents.leave(1);
        assert_eq!(residents.plan(3), Plan::Load(vec![0, 1]));
        assert_eq!(Residents::new(&[300], 250).plan(0), Plan::TooLarge);
    }

    #[test]
    fn a_cycle_is_learned_and_loaded_ahead() {
        let mut residents = Residents::new(&[100; 8], 250);
        let mut found = 0;
        for n in 0..80 {
            found += usize::from(used(&mut residents, n % 8));
            if let Some((next, gone)) = residents.ahead() {
                assert_eq!(next, (n + 1) % 8);
                gone.into_iter().for_each(|i| residents.let_go(i));
                residents.loaded(next);
            }
        }
        assert_eq!(found, 80 - 9, "all after the first round");
        assert_eq!(residents.predictions, residents.predictions_right);
    }

    #[test]
    fn what_follows_without_a_rule_is_not_loaded_ahead() {
        let mut residents = Residents::new(&[100; 4], 250);
        for model in [0, 1, 0, 2, 0, 3, 0] {
            used(&mut residents, model);
        }
        assert_eq!(residents.ahead(), None);
    }

    proptest! {
        #[test]
        fn memory_is_never_exceeded_and_users_keep_their_model(
            sizes in prop::collection::vec(1u64..200, 1..33),
            steps in prop::collection::vec((0usize..33, any::<bool>()), 0..100)
        ) {
            let mut residents = Residents::new(&sizes, 300);
            let mut inside: Vec<Index> = Vec::new();
            for (model, enters) in steps {
                let model = model % sizes.len();
                if !enters {
                    if let Some(left) = inside.pop() {
                        residents.leave(left);
                    }
                    continue;
                }
                residents.asked(model);
                match residents.plan(model) {
                    Plan::Use => {}
                    Plan::Load(gone) => {
                        prop_assert!(gone.iter().all(|g| !inside.contains(g)));
                        gone.into_iter().for_each(|i| residents.let_go(i));
                        residents.loaded(model);
                    }
                    Plan::Wait => {
                        prop_assert!(!inside.is_empty());
                        continue;
                    }
                    Plan::TooLarge => {
                        prop_assert!(sizes[model] > 300);
                        continue;
                    }
                }
                residents.enter(model);
                inside.push(model);
                prop_assert!(residents.mb() <= 300);
                if let Some((next, gone)) = residents.ahead() {
                    prop_assert!(gone.iter().all(|g| !inside.contains(g)));
                    gone.into_iter().for_each(|i| residents.let_go(i));
                    residents.loaded(next);
                    prop_assert!(residents.mb() <= 300);
                }
                prop_assert!(inside.iter().all(|i| residents.is_resident(*i)));
            }
        }
    }
}
