//! What a frame shows: EfficientNet-Lite0's 1000 ImageNet classes pooled into scene groups.
//!
//! The table `data/imagenet_scene_groups.tsv` says which class belongs to which group.

use std::path::Path;
use std::sync::Arc;

use media::{Frame, Scored};

use super::net::Net;
use super::picture::{Area, Colours, Normal, Scaler};
use crate::model::{Interrupt, Model, ModelError};
use crate::runtime::Runtime;

const SIDE: u32 = 224;
const CLASSES: usize = 1000;
/// Share of the shorter side that the network was trained to see.
const CENTRE: f64 = 0.875;
/// Groups below are the sum of many classes' noise.
const SCORE_MIN: f32 = 0.05;
const NORMAL: Normal = Normal { colours: Colours::Rgb, mean: [127.0; 3], deviation: [128.0; 3] };

/// Classifies frames into scene groups.
pub struct SceneClassifier {
    net: Net,
    scaler: Scaler,
    groups: Groups,
    top: usize,
}

impl SceneClassifier {
    /// Opens `efficientnet-lite0.onnx` in `dir`; the best `top` groups are answered.
    ///
    /// # Errors
    /// `Absent` or `Load`, naming the file.
    pub fn open(runtime: &Runtime, dir: &Path, top: usize) -> Result<Self, ModelError> {
        let file = dir.join("efficientnet-lite0.onnx");
        Self::open_file(runtime, "efficientnet-lite0", &file, top)
    }

    /// Opens another file of the same input and output; errors will call it `name`.
    ///
    /// # Errors
    /// `Absent` or `Load`, naming the file.
    pub fn open_file(
        runtime: &Runtime,
        name: &str,
        file: &Path,
        top: usize,
    ) -> Result<Self, ModelError> {
        let net = Net::open(runtime, name, file, 1)?;
        Ok(SceneClassifier { net, scaler: Scaler::new(), groups: Groups::builtin(), top })
    }

    /// Names of all groups there are, for configurations that map them.
    pub fn groups() -> Vec<Arc<str>> {
        Groups::builtin().names
    }
}

impl Model for SceneClassifier {
    type Input = Frame;
    type Output = Vec<Scored>;

    /// One thread computes a batch no faster than its members one by one; three make a piece of 30 ms.
    fn batch_max(&self) -> usize {
        3
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(self.net.interrupt())
    }

    fn run(&mut self, batch: &[Frame]) -> Result<Vec<Vec<Scored>>, ModelError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let side = SIDE as usize;
        let mut input = Vec::with_capacity(batch.len() * 3 * side * side);
        for frame in batch {
            let area = Area::centre_square(frame, CENTRE);
            let rgb = self.scaler.scale(self.net.name(), frame, area, SIDE, SIDE)?;
            NORMAL.planes(&rgb, side, side, &mut input);
        }
        let (groups, top) = (&self.groups, self.top);
        self.net.run([batch.len(), 3, side, side], &input, |answers| {
            let [probabilities, ..] = answers else { return Ok(Vec::new()) };
            probabilities.expect(&[batch.len(), CLASSES])?;
            let frames = probabilities.values.as_chunks::<CLASSES>().0;
            Ok(frames.iter().map(|classes| groups.pool(classes, top)).collect())
        })
    }
}

/// Which class counts for which group.
struct Groups {
    names: Vec<Arc<str>>,
    /// Index into `names` by class.
    of_class: Vec<Option<usize>>,
}

impl Groups {
    fn builtin() -> Self {
        Self::parse(include_str!("../../data/imagenet_scene_groups.tsv"))
    }

    /// One class a line: group, tab, names; `-` for no group, `#` for remarks.
    fn parse(table: &str) -> Self {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut of_class = Vec::new();
        for line in table.lines().filter(|l| !l.starts_with('#')) {
            let group = line.split('\t').next().unwrap_or("-");
            of_class.push((group != "-").then(|| {
                names.iter().position(|n| **n == *group).unwrap_or_else(|| {
                    names.push(Arc::from(group));
                    names.len() - 1
                })
            }));
        }
        Groups { names, of_class }
    }

    fn pool(&self, classes: &[f32], top: usize) -> Vec<Scored> {
        let mut sums = vec![0.0; self.names.len()];
        for (group, probability) in self.of_class.iter().zip(classes) {
            if let Some(group) = group {
                sums[*group] += probability;
            }
        }
        let mut scored: Vec<Scored> = (self.names.iter().zip(sums))
            .filter(|(_, sum)| *sum >= SCORE_MIN)
            .map(|(name, sum)| Scored { label: name.clone(), score: sum.clamp(0.0, 1.0) })
            .collect();
        scored.sort_by(|a, b| b.score.total_cmp(&a.score));
        scored.truncate(top);
        scored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_class_and_a_group_is_no_single_class() {
        let groups = Groups::builtin();
        assert_eq!(groups.of_class.len(), CLASSES);
        for (index, name) in groups.names.iter().enumerate() {
            let classes = groups.of_class.iter().filter(|g| **g == Some(index)).count();
            assert!(classes >= 3, "{name} has {classes}");
        }
        let table = include_str!("../../data/imagenet_scene_groups.tsv");
        let line = |class: usize| table.lines().filter(|l| !l.starts_with('#')).nth(class).unwrap();
        assert_eq!(line(0), "animals\ttench, Tinca tinca");
        assert_eq!(line(920), "street\ttraffic light, traffic signal, stoplight");
        assert!(line(999).ends_with("toilet tissue, toilet paper, bathroom tissue"));
    }

    #[test]
    fn probabilities_of_a_groups_classes_are_added() {
        let groups = Groups::parse("# remark\nzoo\ta\n-\tb\nroad\tc\nzoo\td\n");
        let pooled = groups.pool(&[0.2, 0.3, 0.01, 0.4], 5);
        assert_eq!(pooled.len(), 1);
        assert_eq!(&*pooled[0].label, "zoo");
        assert!((pooled[0].score - 0.6).abs() < 1e-6);
    }
}
