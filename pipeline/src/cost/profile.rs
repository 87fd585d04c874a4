//! A machine's own figures: `costs.json` in the user's cache folder, written by `pipeline bench models` and, at its
//! end, by every run that learned something.
//!
//! Replaced as a whole by a rename, so that a reader never sees half of it; of two writers the last one wins. One
//! rule: figures of another machine, or of other weights, are never taken for this one's.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use engine::compute::{ComputeStats, ModelStats};
use models::Catalogue;
use models::cost::{ModelCost, Quantiles, SizeCost};
use serde::{Deserialize, Serialize};

const SCHEMA: &str = "costs/1";
/// Fewer runs say too little.
const RUNS_MIN: u64 = 32;

/// Which machine a figure is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineId {
    /// Name of the processor.
    pub processor: String,
    /// Cores there are to compute on.
    pub cores: usize,
}

impl MachineId {
    /// This machine.
    pub fn here() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        MachineId {
            processor: name.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Figures of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    schema: String,
    /// Whose they are.
    pub machine: MachineId,
    /// By the name that a ledger has for each (`ppocr-v5/detect`).
    pub models: BTreeMap<String, Measured>,
}

/// One model's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Version of the weights, [`models::catalogue::Entry::version`].
    pub weights: String,
    /// Day of the measurement, `2026-11-30`.
    pub date: String,
    /// Who measured.
    pub by: By,
    /// What was measured.
    pub cost: ModelCost,
}

/// Who measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// `pipeline bench models`, one model at a time.
    Bench,
    /// A run, with everything else at work beside it.
    Run,
}

/// Where the catalogue's user keeps it.
pub(crate) fn path(catalogue: &Catalogue) -> PathBuf {
    catalogue.cache().join("costs.json")
}

impl Profile {
    /// No figures yet.
    pub fn new(machine: MachineId) -> Self {
        Profile { schema: SCHEMA.into(), machine, models: BTreeMap::new() }
    }

    /// What `path` says of `machine`; where it says nothing, why.
    pub fn read(path: &Path, machine: &MachineId) -> (Self, Option<String>) {
        let none = |why: Option<String>| (Profile::new(machine.clone()), why);
        let shown = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return none(None),
            Err(e) => return none(Some(format!("{shown} can't be read: {e}"))),
        };
        let mut profile: Profile = match serde_json::from_str(&text) {
            Ok(profile) => profile,
            Err(e) => return none(Some(format!("{shown} is no cost profile: {e}"))),
        };
        if profile.schema != SCHEMA {
            let found = profile.schema;
            return none(Some(format!("{shown} is of schema `{found}`, expected `{SCHEMA}`")));
        }
        if profile.machine != *machine {
            let MachineId { processor, cores } = profile.machine;
            return none(Some(format!(
                "{shown} is of another machine ({processor}, {cores} cores)"
            )));
        }
        profile.models.retain(|_, measured| measured.cost.is_sound());
        (profile, None)
    }

    /// Leaves out what is of other weights than the catalogue's, or of none of its models.
    pub fn keep_known(&mut self, catalogue: &Catalogue) {
        self.models.retain(|name, measured| {
            catalogue.entry_of(name).is_some_and(|entry| entry.version() == measured.weights)
        });
    }

    /// Replaces the file, or leaves it as it was.
    ///
    /// # Errors
    /// One sentence: the file, and what the system said.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let text = serde_json::to_string_pretty(self).map_err(|e| failed(e.into()))?;
        let part = part_of(path);
        let written = std::fs::File::create(&part).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        });
        written.and_then(|()| std::fs::rename(&part, path)).map_err(|e| {
            // What was written of it is of no use.
            let _ = std::fs::remove_file(&part);
            failed(e)
        })
    }

    /// Takes over what a run has learned of models that ran often enough, on top of what was known of them. False
    /// when there was nothing.
    pub fn learn(&mut self, catalogue: &Catalogue, stats: &ComputeStats, date: &str) -> bool {
        let mut any = false;
        for model in &stats.models {
            let Some(entry) = catalogue.entry_of(&model.model) else { continue };
            let known = self.models.get(&model.model).map(|measured| &measured.cost);
            let Some(known) = known.or_else(|| entry.costs.get(&model.model)) else { continue };
            let Some(cost) = learned(known, model).filter(ModelCost::is_sound) else { continue };
            let (weights, date) = (entry.version(), date.to_owned());
            let measured = Measured { weights, date, by: By::Run, cost };
            self.models.insert(model.model.clone(), measured);
            any = true;
        }
        any
    }
}

/// `known` with what a run found; none when it ran too seldom.
fn learned(known: &ModelCost, stats: &ModelStats) -> Option<ModelCost> {
    let mut cost = known.clone();
    let mut any = false;
    for size in stats.learned.iter().filter(|size| size.runs >= RUNS_MIN) {
        let [p50, p90, p99] = [size.p50_ms, size.p90_ms, size.p99_ms].map(rounded);
        let ms = Quantiles { p50, p90, p99 };
        if !cost.unit.is_batched() {
            // Jobs are pieces here; what they add up to is not the scheduler's to know.
            if size.batch == 1 && !cost.interruptible {
                cost.piece_ms = ms;
                any = true;
            }
            continue;
        }
        let batch = u32::try_from(size.batch).ok()?;
        match cost.sizes.iter_mut().find(|known| known.size == batch) {
            Some(known) => known.ms = ms,
            None => cost.sizes.push(SizeCost { size: batch, ms }),
        }
        any = true;
    }
    cost.sizes.sort_by_key(|size| size.size);
    if cost.unit.is_batched() && !cost.interruptible && any {
        // The longest run is the longest piece.
        let longest = |a: Quantiles, b: &SizeCost| if b.ms.p99 > a.p99 { b.ms } else { a };
        cost.piece_ms = cost.sizes.iter().fold(Quantiles::default(), longest);
    }
    any.then_some(cost)
}

/// Microseconds are as fine as it gets.
pub(crate) fn rounded(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

fn part_of(path: &Path) -> PathBuf {
    path.with_extension(format!("json.{}.part", std::process::id()))
}

/// The day, as the file system has it: what writes beside `path` is dated so.
pub(crate) fn today(path: &Path) -> Result<String, String> {
    let part = part_of(path);
    let failed = |e: std::io::Error| format!("{}: {e}", part.display());
    let made = std::fs::File::create(&part).and_then(|file| file.metadata()?.modified());
    let _ = std::fs::remove_file(&part);
    let since = made.map_err(failed)?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(date(since.as_secs() / 86_400))
}

/// Day of the Gregorian calendar, counted from 1970-01-01.
fn date(days: u64) -> String {
    // Eras of 400 years that begin on a 1 March, so that leap days come last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use engine::Class;
    use engine::compute::LearnedStats;
    use models::cost::WorkUnit;

    use super::*;

    fn flat(ms: f64) -> Quantiles {
        Quantiles { p50: ms, p90: ms, p99: ms }
    }

    fn here() -> MachineId {
        MachineId { processor: "A".into(), cores: 2 }
    }

    fn profile() -> Profile {
        let catalogue = Catalogue::at("/nowhere".into());
        let cost = ModelCost {
            unit: WorkUnit::Frame,
            interruptible: true,
            piece_ms: flat(2.0),
            sizes: vec![SizeCost { size: 1, ms: flat(20.0) }],
        };
        let weights = catalogue.entry("ssdlite-300").unwrap().version();
        let measured = Measured { weights, date: "2026-11-30".into(), by: By::Bench, cost };
        let mut profile = Profile::new(here());
        profile.models.insert("ssdlite-300".into(), measured);
        profile
    }

    fn stats(runs: u64, interruptible: bool) -> ComputeStats {
        let size =
            |batch, runs, ms| LearnedStats { batch, runs, p50_ms: ms, p90_ms: ms, p99_ms: ms };
        let model = ModelStats {
            model: "ssdlite-300".into(),
            class: Class::Vision,
            counts: Default::default(),
            cost_p50_ms: None,
            cost_p90_ms: None,
            estimate_error_p50: None,
            estimate_error_p90: None,
            interruptible,
            pieces: 0,
            piece_p99_ms: None,
            piece_max_ms: None,
            learned: vec![size(1, 4, 99.0), size(2, runs, 33.0)],
        };
        let models = vec![model];
        let (lanes_stuck, classes) = (Vec::new(), BTreeMap::new());
        ComputeStats { lanes: 2, lanes_held: 0, lanes_stuck, classes, models }
    }

    #[test]
    fn what_is_written_is_read_by_the_same_machine_and_by_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("costs.json");
        assert_eq!(Profile::read(&path, &here()), (Profile::new(here()), None), "not there yet");
        profile().write(&path).unwrap();
        assert_eq!(Profile::read(&path, &here()), (profile(), None));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");

        let other = MachineId { processor: "B".into(), cores: 8 };
        let (none, why) = Profile::read(&path, &other);
        assert!(none.models.is_empty());
        assert!(why.unwrap().contains("another machine (A, 2 cores)"));
        std::fs::write(&path, "{").unwrap();
        assert!(Profile::read(&path, &here()).1.unwrap().contains("is no cost profile"));
        std::fs::write(
            &path,
            serde_json::to_string(&profile()).unwrap().replace("costs/1", "costs/9"),
        )
        .unwrap();
        assert!(Profile::read(&path, &here()).1.unwrap().contains("schema `costs/9`"));
    }

    #[test]
    fn figures_of_other_weights_are_forgotten() {
        let catalogue = Catalogue::at("/nowhere".into());
        let mut own = profile();
        own.keep_known(&catalogue);
        assert_eq!(own, profile());
        own.models.get_mut("ssdlite-300").unwrap().weights = "older".into();
        own.models.insert("gone".into(), profile().models["ssdlite-300"].clone());
        own.keep_known(&catalogue);
        assert!(own.models.is_empty());
    }

    #[test]
    fn a_run_teaches_sizes_that_ran_often_enough_and_no_others() {
        let catalogue = Catalogue::at("/nowhere".into());
        let mut own = profile();
        assert!(!own.learn(&catalogue, &stats(31, true), "2026-12-01"));
        assert_eq!(own, profile());
        assert!(own.learn(&catalogue, &stats(32, true), "2026-12-01"));
        let measured = &own.models["ssdlite-300"];
        assert_eq!((measured.by, measured.date.as_str()), (By::Run, "2026-12-01"));
        let sizes: Vec<(u32, f64)> =
            measured.cost.sizes.iter().map(|s| (s.size, s.ms.p50)).collect();
        assert_eq!(sizes, [(1, 20.0), (2, 33.0)], "four runs of one frame say too little");
        assert_eq!(measured.cost.piece_ms, flat(2.0), "how fast it can be ended was not learned");
    }

    #[test]
    fn days_become_dates() {
        for (days, want) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_787, "2026-11-30"),
        ] {
            assert_eq!(date(days), want);
        }
    }
}
