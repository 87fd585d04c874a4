//! What each model costs, as far as it is known: this machine's own figures, and for what it lacks the catalogue's.

use std::collections::BTreeMap;

use models::Catalogue;
use models::cost::ModelCost;

use super::profile::{self, By, MachineId, Profile};

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `pipeline bench models` on this machine.
    Bench,
    /// A run on this machine.
    Run,
    /// The catalogue, measured on another machine.
    Catalogue,
}

impl Origin {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Bench => "bench",
            Origin::Run => "run",
            Origin::Catalogue => "catalogue",
        }
    }
}

/// A model's cost and where that is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The figures.
    pub cost: ModelCost,
    /// Whose they are.
    pub origin: Origin,
}

/// Costs by the name that a ledger has for each model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    known: BTreeMap<String, Known>,
    /// Why this machine's own figures could not be used.
    pub note: Option<String>,
}

impl Costs {
    /// This machine's own figures over the catalogue's.
    pub fn here(catalogue: &Catalogue) -> Self {
        let (mut own, note) = Profile::read(&profile::path(catalogue), &MachineId::here());
        own.keep_known(catalogue);
        let mut costs = Costs { note, ..Costs::of_catalogue(catalogue) };
        for (name, measured) in own.models {
            let origin = match measured.by {
                By::Bench => Origin::Bench,
                By::Run => Origin::Run,
            };
            costs.insert(&name, Known { cost: measured.cost, origin });
        }
        costs
    }

    /// The catalogue's figures alone.
    pub fn of_catalogue(catalogue: &Catalogue) -> Self {
        let mut costs = Costs::default();
        for (name, cost) in catalogue.entries().iter().flat_map(|entry| &entry.costs) {
            costs.insert(name, Known { cost: cost.clone(), origin: Origin::Catalogue });
        }
        costs
    }

    /// Makes a model's cost known, in place of what was.
    pub fn insert(&mut self, name: &str, known: Known) {
        self.known.insert(name.to_owned(), known);
    }

    /// What is known of a model.
    pub fn get(&self, name: &str) -> Option<&Known> {
        self.known.get(name)
    }

    /// All that is known.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Known)> {
        self.known.iter().map(|(name, known)| (name.as_str(), known))
    }
}
